from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.policies.restart_check import (
    Effect,
    PartitionHealth,
    RestartCheck,
    check_restart,
)

P = TopicPartition("t", 0)
ALL = (1, 2, 3)


def health(
    leader: int = 1,
    isr: tuple[int, ...] = ALL,
    eligible: tuple[int, ...] = (),
    min_isr: int = 2,
    replicas: tuple[int, ...] = ALL,
) -> PartitionHealth:
    return PartitionHealth(replicas, leader, isr, eligible, min_isr)


def check(broker: int, state: PartitionHealth, running: tuple[int, ...] = ALL) -> RestartCheck:
    return check_restart(broker, {P: state}, running)


def effect(
    broker: int, state: PartitionHealth, running: tuple[int, ...] = ALL
) -> tuple[Effect | None, str]:
    findings = check(broker, state, running).findings
    return (findings[0].effect, findings[0].reason) if findings else (None, "")


def test_a_follower_of_a_fully_replicated_partition_causes_no_finding() -> None:
    assert check(2, health()) == RestartCheck([])
    assert check(2, health()).safe


def test_a_leader_with_successors_only_transfers_leadership() -> None:
    result = check(1, health())
    assert result.safe
    assert [(f.partition, f.effect) for f in result.findings] == [(P, Effect.LEADER_MOVES)]
    assert "broker 2 takes over" in result.findings[0].reason


def test_the_successor_is_the_first_running_replica_in_sync() -> None:
    state = health(isr=(1, 2, 3, 4), replicas=(1, 4, 3, 2))
    assert effect(1, state, (1, 2, 3))[1] == "broker 3 takes over"


def test_a_broker_without_a_replica_causes_no_finding() -> None:
    assert check(9, health(), (1, 2, 3, 9)).findings == []


def test_a_replica_out_of_sync_causes_no_finding() -> None:
    assert check(3, health(isr=(1, 2))).findings == []


@pytest.mark.parametrize(
    ("state", "running", "reason"),
    [
        (health(replicas=(1,), isr=(1,), min_isr=1), ALL, "its only replica.*replication factor"),
        (health(isr=(1,), min_isr=1), ALL, "until broker 2 or broker 3 has caught up"),
        (health(isr=(1, 2)), (1, 3), "start broker 2 first"),
        (health(isr=(1,), eligible=(2,)), (1, 3), "start broker 2 first"),
    ],
)
def test_without_the_only_possible_leader_the_partition_is_unavailable(
    state: PartitionHealth, running: tuple[int, ...], reason: str
) -> None:
    found, why = effect(1, state, running)
    assert found is Effect.UNAVAILABLE
    assert re.search(reason, why)
    assert not check(1, state, running).safe


def test_the_next_leader_of_a_partition_whose_leader_just_died_is_needed() -> None:
    assert effect(2, health(isr=(1, 2), min_isr=1), (2, 3))[0] is Effect.UNAVAILABLE
    assert effect(2, health(isr=(1,), eligible=(2,)), (2, 3))[0] is Effect.UNAVAILABLE


def test_a_partition_without_a_leader_needs_the_holders_of_committed_records() -> None:
    state = health(leader=NO_LEADER, isr=(1, 2))
    assert effect(1, state)[0] is Effect.UNAVAILABLE
    assert effect(3, state)[0] is None


@pytest.mark.parametrize("broker", [1, 2])
def test_a_partition_may_fall_under_min_isr(broker: int) -> None:
    found, why = effect(broker, health(isr=(1, 2)))
    assert found is Effect.UNDER_MIN_ISR
    assert "1 replica would be in sync where min_insync_replicas is 2" in why
    assert "broker 3 has caught up" in why
    assert not check(broker, health(isr=(1, 2))).safe


def test_members_that_do_not_run_do_not_count_for_min_isr() -> None:
    found, why = effect(1, health(), (1, 2))
    assert found is Effect.UNDER_MIN_ISR
    assert why.endswith("start broker 3 first")


def test_with_as_many_replicas_as_min_isr_the_remedy_is_a_higher_factor() -> None:
    found, why = effect(2, health(replicas=(1, 2), isr=(1, 2)))
    assert found is Effect.UNDER_MIN_ISR
    assert why.endswith("give the topic a higher replication factor")


def test_a_partition_already_under_min_isr_does_not_fall_under_it() -> None:
    state = health(isr=(1,), eligible=(2, 3))
    assert effect(1, state)[0] is Effect.LEADER_MOVES
    assert check(1, state).safe


def test_restarting_one_of_two_isr_members_leaves_a_last_replica() -> None:
    state = health(isr=(1, 2), min_isr=1)
    found, why = effect(1, state)
    assert found is Effect.LAST_REPLICA
    assert "broker 2 alone" in why
    assert check(1, state).safe


def test_the_worst_finding_comes_first() -> None:
    partitions = {
        TopicPartition("a", 0): health(),
        TopicPartition("a", 1): health(isr=(1, 2), min_isr=1),
        TopicPartition("b", 0): health(isr=(1, 2)),
        TopicPartition("b", 1): health(isr=(1,)),
        TopicPartition("b", 2): health(),
        TopicPartition("b", 3): health(leader=2),
    }
    result = check_restart(1, partitions, ALL)
    assert [(f.effect, f.partition.partition) for f in result.findings] == [
        (Effect.UNAVAILABLE, 1),
        (Effect.UNDER_MIN_ISR, 0),
        (Effect.LAST_REPLICA, 1),
        (Effect.LEADER_MOVES, 0),
        (Effect.LEADER_MOVES, 2),
    ]
    assert result.counts[Effect.LEADER_MOVES] == 2


@given(
    st.permutations((1, 2, 3, 4)),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sets(st.sampled_from((1, 2, 3, 4))),
)
def test_a_safe_restart_keeps_a_leader_and_min_isr(
    order: list[int], factor: int, in_sync: int, min_isr: int, running: set[int]
) -> None:
    replicas = tuple(order[:factor])
    isr = replicas[:in_sync]
    state = PartitionHealth(replicas, isr[0], isr, (), min_isr)
    running.add(isr[0])
    for broker in (b for b in replicas if b in running):
        rest = [b for b in isr if b in running and b != broker]
        members = [b for b in isr if b in running]
        if check_restart(broker, {P: state}, running).safe and broker in isr:
            assert rest
            assert len(rest) >= min_isr or len(members) < min_isr
