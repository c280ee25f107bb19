"""Choice of another leader for a partition whose leader serves."""

from __future__ import annotations

from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.electability import ElectionRules, LiveBroker
from tidelog_controller.policies.leader_transfer import (
    RequestedLeader,
    successor_of,
    transfer_leadership,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving

RULES = ElectionRules()


def live(*broker_ids: int, stopping: int = 0) -> dict[int, LiveBroker]:
    return {b: LiveBroker(10 * b, b != stopping, 10 * b, 10 * b) for b in broker_ids}


def led(leader: int, *isr: int, moving: Moving | None = None) -> LeaderAndIsr:
    members = tuple(Member(b, 10 * b) for b in isr)
    return LeaderAndIsr("id", (1, 2, 3), 1, leader, 6, members, (), 2, moving=moving)


def wanted(leader: int, *, first: bool = False) -> RequestedLeader:
    return RequestedLeader(leader, first, Cause.LEADER_MOVED)


def test_a_member_of_the_isr_leads_in_the_next_epoch() -> None:
    new = transfer_leadership(led(1, 1, 2, 3), live(1, 2, 3), RULES, 4, wanted(2))
    assert new is not None
    assert (new.leader, new.leader_epoch, new.controller_epoch) == (2, 7, 4)
    assert (new.replicas, new.isr) == ((1, 2, 3), led(1, 1, 2, 3).isr)


def test_the_chosen_leader_becomes_the_first_replica() -> None:
    new = transfer_leadership(led(1, 1, 2, 3), live(1, 2, 3), RULES, 4, wanted(3, first=True))
    assert new is not None
    assert (new.leader, new.replicas) == (3, (3, 1, 2))


def test_a_new_order_alone_takes_a_new_epoch_too() -> None:
    new = transfer_leadership(led(2, 1, 2, 3), live(1, 2, 3), RULES, 4, wanted(2, first=True))
    assert new is not None
    assert (new.leader, new.replicas, new.leader_epoch) == (2, (2, 1, 3), 7)


def test_an_unchanged_state_is_not_written() -> None:
    assert transfer_leadership(led(1, 1, 2), live(1, 2), RULES, 4, wanted(1, first=True)) is None


def test_only_a_running_isr_member_in_its_current_incarnation_may_lead() -> None:
    assert transfer_leadership(led(1, 1, 2), live(1, 2, 3), RULES, 4, wanted(3)) is None
    assert transfer_leadership(led(1, 1, 2), live(1, 2, stopping=2), RULES, 4, wanted(2)) is None
    reborn = {**live(1), 2: LiveBroker(99, True, 5, 5)}
    assert transfer_leadership(led(1, 1, 2), reborn, RULES, 4, wanted(2)) is None
    assert transfer_leadership(led(1, 1, 2), live(1, 2), RULES, 4, wanted(9)) is None


def test_leadership_is_not_transferred_while_no_leader_serves() -> None:
    assert transfer_leadership(led(NO_LEADER, 1, 2), live(1, 2), RULES, 4, wanted(2)) is None
    assert transfer_leadership(led(1, 1, 2), live(2), RULES, 4, wanted(2)) is None


def test_the_replica_order_of_a_moving_partition_is_kept() -> None:
    moving = Moving("op", (1, 2), (3, 2))
    state = led(1, 1, 2, moving=moving)
    new = transfer_leadership(state, live(1, 2, 3), RULES, 4, wanted(2, first=True))
    assert new is not None
    assert (new.leader, new.replicas, new.moving) == (2, (1, 2, 3), moving)


def test_in_place_of_a_broker_in_maintenance_the_first_replica_that_can_leads() -> None:
    state, brokers = led(1, 1, 2, 3), live(1, 2, 3)
    assert successor_of(state, brokers, RULES, {1}) == 2
    assert successor_of(state, brokers, RULES, {1, 2}) == 3
    assert successor_of(state, brokers, RULES, {2}) is None
    assert successor_of(led(1, 1), brokers, RULES, {1}) is None
