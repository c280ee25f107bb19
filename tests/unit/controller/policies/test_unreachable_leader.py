"""Deposition of a living leader after reports of its followers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.model import NO_LEADER
from tidelog_controller.policies.electability import ElectionRules, LiveBroker
from tidelog_controller.policies.leader_election import next_state
from tidelog_controller.policies.unreachable_leader import may_depose
from tidelog_runtime.metadata.schema import NOT_WHOLE, LeaderAndIsr, Member, Moving

RULES = ElectionRules()
TOPIC_ID = "a-topic"


def epoch_of(broker_id: int) -> int:
    return 100 + broker_id


def live(*broker_ids: int, stopping: tuple[int, ...] = ()) -> dict[int, LiveBroker]:
    return {
        b: LiveBroker(epoch_of(b), b not in stopping, epoch_of(b), epoch_of(b)) for b in broker_ids
    }


def members(*broker_ids: int) -> tuple[Member, ...]:
    return tuple(Member(b, epoch_of(b)) for b in broker_ids)


def partition(
    *isr: int,
    eligible: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 3),
    min_isr: int = 2,
) -> LeaderAndIsr:
    """Led by broker 1, in its current incarnation where it is in the ISR."""
    return LeaderAndIsr(
        topic_id=TOPIC_ID,
        replicas=replicas,
        controller_epoch=1,
        leader=1 if 1 in isr else NO_LEADER,
        leader_epoch=7,
        isr=members(*isr),
        eligible=members(*eligible),
        min_isr=min_isr,
    )


ALONE = partition(1, eligible=(2, 3))
ALL = live(1, 2, 3)


@pytest.mark.rule("cut-off-leader-is-replaced")
def test_a_leader_alone_below_min_isr_is_deposed_by_all_its_followers() -> None:
    new = next_state(ALONE, ALL, 2, RULES, reporters=(2, 3))
    assert new is not None
    assert (new.leader, new.leader_epoch, new.controller_epoch) == (2, 8, 2)


def test_the_new_leader_is_alone_in_sync_and_the_deposed_one_stays_eligible() -> None:
    new = next_state(ALONE, ALL, 2, RULES, reporters=(2, 3))
    assert new is not None
    assert new.isr == members(2)
    assert new.eligible == members(1, 3)
    assert new.unclean_leader_epoch == ALONE.unclean_leader_epoch


def test_without_reports_a_leader_below_min_isr_stays() -> None:
    assert next_state(ALONE, ALL, 2, RULES) is None


@pytest.mark.rule("cut-off-leader-is-replaced")
def test_one_follower_is_not_enough_where_min_isr_needs_two() -> None:
    assert not may_depose(ALONE, ALL, RULES, (2,))


@pytest.mark.rule("cut-off-leader-is-replaced")
def test_a_leader_at_min_isr_is_not_deposed() -> None:
    assert not may_depose(partition(1, 2), ALL, RULES, (2, 3))


def test_with_min_isr_1_a_leader_is_never_deposed() -> None:
    assert not may_depose(partition(1, 2, min_isr=1), ALL, RULES, (2, 3))


def test_the_leader_does_not_count_as_its_own_reporter() -> None:
    state = partition(1, eligible=(2,), replicas=(1, 2))
    assert not may_depose(state, live(1, 2), RULES, (1, 2))


def test_a_reporter_without_a_replica_does_not_count() -> None:
    assert not may_depose(ALONE, live(1, 2, 3, 4), RULES, (2, 4))


def test_a_reporter_that_is_stopping_does_not_count() -> None:
    assert not may_depose(ALONE, live(1, 2, 3, stopping=(3,)), RULES, (2, 3))


def test_a_reporter_that_is_gone_does_not_count() -> None:
    assert not may_depose(ALONE, live(1, 2), RULES, (2, 3))


def test_a_reporter_outside_the_isr_counts_but_is_not_elected() -> None:
    new = next_state(partition(1, eligible=(3,)), ALL, 2, RULES, reporters=(2, 3))
    assert new is not None
    assert new.leader == 3


def test_without_a_reporter_that_holds_committed_records_no_replica_is_elected() -> None:
    assert not may_depose(partition(1), ALL, RULES, (2, 3))


@pytest.mark.rule("cut-off-leader-is-replaced")
def test_a_reporter_that_lost_data_is_not_elected() -> None:
    state = partition(1, eligible=(3,))
    resigned = LeaderAndIsr(
        **{
            **{name: getattr(state, name) for name in state.__slots__},
            "eligible": (Member(2, NOT_WHOLE), *state.eligible),
        }
    )
    new = next_state(resigned, ALL, 2, RULES, reporters=(2, 3))
    assert new is not None
    assert new.leader == 3


def test_a_reporter_that_rebooted_since_is_not_elected() -> None:
    rebooted = {**ALL, 2: LiveBroker(900, True, 900, 900)}
    new = next_state(ALONE, rebooted, 2, RULES, reporters=(2, 3))
    assert new is not None
    assert new.leader == 3


def test_in_a_synced_topic_a_reporter_with_a_rebooted_machine_is_elected() -> None:
    rebooted = {**ALL, 2: LiveBroker(900, True, 900, epoch_of(2))}
    new = next_state(ALONE, rebooted, 2, ElectionRules(synced=True), reporters=(2, 3))
    assert new is not None
    assert (new.leader, new.isr) == (2, (Member(2, 900),))


def test_a_reporting_member_of_the_isr_may_lead() -> None:
    state = partition(1, 2, eligible=(3, 4), replicas=(1, 2, 3, 4), min_isr=3)
    new = next_state(state, live(1, 2, 3, 4), 2, RULES, reporters=(2, 3, 4))
    assert new is not None
    assert (new.leader, new.isr, new.eligible) == (2, members(2), members(1, 3, 4))


def test_a_partition_without_a_leader_is_not_deposed() -> None:
    assert not may_depose(partition(2, eligible=(3,)), ALL, RULES, (2, 3))


def test_followers_added_by_a_move_do_not_count_before_they_were_in_sync() -> None:
    moving = Moving("op", (1, 2), (1, 3))
    added = replace(partition(1, eligible=(2,)), moving=moving)
    assert not may_depose(added, ALL, RULES, reporters=(2, 3))
    assert may_depose(replace(added, eligible=members(2, 3)), ALL, RULES, reporters=(2, 3))
