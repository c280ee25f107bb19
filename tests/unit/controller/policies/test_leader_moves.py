"""Another leader for a partition whose leader serves."""

from __future__ import annotations

from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.electability import ElectionRules, LiveBroker
from tidelog_controller.policies.leader_moves import WantedLeader, in_place_of, led_by_another
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving

RULES = ElectionRules()


def live(*broker_ids: int, stopping: int = 0) -> dict[int, LiveBroker]:
    return {b: LiveBroker(10 * b, b != stopping, 10 * b, 10 * b) for b in broker_ids}


def led(leader: int, *isr: int, moving: Moving | None = None) -> LeaderAndIsr:
    members = tuple(Member(b, 10 * b) for b in isr)
    return LeaderAndIsr("id", (1, 2, 3), 1, leader, 6, members, (), 2, moving=moving)


def wanted(leader: int, *, first: bool = False) -> WantedLeader:
    return WantedLeader(leader, first, Cause.LEADER_MOVED)


def test_a_member_of_the_isr_leads_in_the_next_epoch() -> None:
    new = led_by_another(led(1, 1, 2, 3), live(1, 2, 3), RULES, 4, wanted(2))
    assert new is not None
    assert (new.leader, new.leader_epoch, new.controller_epoch) == (2, 7, 4)
    assert (new.replicas, new.isr) == ((1, 2, 3), led(1, 1, 2, 3).isr)


def test_the_one_that_is_to_be_first_becomes_so() -> None:
    new = led_by_another(led(1, 1, 2, 3), live(1, 2, 3), RULES, 4, wanted(3, first=True))
    assert new is not None
    assert (new.leader, new.replicas) == (3, (3, 1, 2))


def test_another_order_alone_takes_a_new_epoch_too() -> None:
    new = led_by_another(led(2, 1, 2, 3), live(1, 2, 3), RULES, 4, wanted(2, first=True))
    assert new is not None
    assert (new.leader, new.replicas, new.leader_epoch) == (2, (2, 1, 3), 7)


def test_what_is_so_already_is_not_written() -> None:
    assert led_by_another(led(1, 1, 2), live(1, 2), RULES, 4, wanted(1, first=True)) is None


def test_nobody_leads_who_is_not_in_the_isr_in_the_present_life_of_a_running_broker() -> None:
    assert led_by_another(led(1, 1, 2), live(1, 2, 3), RULES, 4, wanted(3)) is None
    assert led_by_another(led(1, 1, 2), live(1, 2, stopping=2), RULES, 4, wanted(2)) is None
    reborn = {**live(1), 2: LiveBroker(99, True, 5, 5)}
    assert led_by_another(led(1, 1, 2), reborn, RULES, 4, wanted(2)) is None
    assert led_by_another(led(1, 1, 2), live(1, 2), RULES, 4, wanted(9)) is None


def test_nobody_is_moved_while_no_leader_serves() -> None:
    assert led_by_another(led(NO_LEADER, 1, 2), live(1, 2), RULES, 4, wanted(2)) is None
    assert led_by_another(led(1, 1, 2), live(2), RULES, 4, wanted(2)) is None


def test_the_order_of_a_partition_on_its_way_stays() -> None:
    moving = Moving("op", (1, 2), (3, 2))
    state = led(1, 1, 2, moving=moving)
    new = led_by_another(state, live(1, 2, 3), RULES, 4, wanted(2, first=True))
    assert new is not None
    assert (new.leader, new.replicas, new.moving) == (2, (1, 2, 3), moving)


def test_in_place_of_a_broker_in_maintenance_leads_the_first_that_can() -> None:
    state, brokers = led(1, 1, 2, 3), live(1, 2, 3)
    assert in_place_of(state, brokers, RULES, {1}) == 2
    assert in_place_of(state, brokers, RULES, {1, 2}) == 3
    assert in_place_of(state, brokers, RULES, {2}) is None
    assert in_place_of(led(1, 1), brokers, RULES, {1}) is None
