"""Commands that are lost, late, repeated and reordered end in the state of the newest one
(rule `decisions-ordered-by-revision`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from tidelog.model import NO_LEADER
from tidelog_broker.core import replica_registry
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.replica_registry import StoppedReplicas
from tidelog_runtime.replica_control import LeaderAndIsrCommand, StopReplicaCommand
from unit.broker.broker_parts import KEY, Replicas, command, revision_of, stop_command
from unit.broker.fake_log import TOPIC_ID, state

Command = LeaderAndIsrCommand | StopReplicaCommand

LEAD = command(state(leader=1, epoch=5), 11)
SHRINK = command(state(leader=1, epoch=5, isr=(1, 2)), 12)
FOLLOW = command(state(leader=2, epoch=6), 13)
NOBODY = command(state(leader=NO_LEADER, epoch=7), 14)
LEAD_AGAIN = command(state(leader=1, epoch=8), 15)
STOP = stop_command(16)
BACK = command(state(leader=1, epoch=9), 17)


def orders(*commands: Command) -> Iterator[tuple[Command, ...]]:
    """All orders, each with its first two commands repeated at the end."""
    for order in itertools.permutations(commands):
        yield (*order, *order[:2])


async def carry_out(replicas: Replicas, commands: Sequence[Command]) -> None:
    """Every command is acknowledged, and no replica ever goes back."""
    newest = 0
    for each in commands:
        if isinstance(each, StopReplicaCommand):
            revision = revision_of(await replicas.commands.stop_replica(each))
        else:
            revision = revision_of(await replicas.commands.leader_and_isr(each))
        assert revision >= each.partitions[0].revision
        for partition in replicas.manager.all():
            assert partition.revision >= newest
            newest = partition.revision


async def started() -> Replicas:
    """A broker that has received an empty full state."""
    replicas = Replicas()
    empty = command(state(), 1, numbers=(), full_state=True)
    await replicas.commands.leader_and_isr(empty)
    return replicas


def only(replicas: Replicas) -> Partition:
    (partition,) = replicas.manager.all()
    return partition


@pytest.mark.rule("decisions-ordered-by-revision")
async def test_in_any_order_and_with_repeats_the_newest_state_is_taken() -> None:
    for order in orders(LEAD, SHRINK, FOLLOW, NOBODY, LEAD_AGAIN):
        replicas = await started()
        await carry_out(replicas, order)
        partition = only(replicas)
        assert (partition.revision, partition.leader_epoch) == (15, 8)
        assert partition.leading


async def test_a_deposed_leader_does_not_lead_again_by_late_commands() -> None:
    for order in orders(LEAD, SHRINK, FOLLOW, NOBODY):
        replicas = await started()
        await carry_out(replicas, order)
        assert (only(replicas).revision, only(replicas).leading) == (14, None)


async def test_a_stopped_replica_does_not_come_back_by_late_commands() -> None:
    for order in orders(LEAD, FOLLOW, LEAD_AGAIN, STOP):
        replicas = await started()
        await carry_out(replicas, order)
        assert list(replicas.manager.all()) == []
        assert list(replicas.logs.keys()) == []


@pytest.mark.rule("decisions-ordered-by-revision")
async def test_a_replica_that_was_assigned_again_is_not_stopped_by_a_late_command() -> None:
    for order in orders(LEAD, LEAD_AGAIN, STOP, BACK):
        replicas = await started()
        await carry_out(replicas, order)
        assert (only(replicas).revision, only(replicas).leader_epoch) == (17, 9)
        assert only(replicas).leading


async def test_lost_commands_do_not_affect_the_others() -> None:
    others: tuple[Command, ...] = (LEAD, SHRINK, FOLLOW, NOBODY, LEAD_AGAIN, STOP)
    for count in range(len(others)):
        for kept in itertools.combinations(others, count):
            replicas = await started()
            await carry_out(replicas, (*kept, BACK))
            assert only(replicas).revision == 17


async def test_a_stray_does_not_come_back_by_a_command_from_before_the_full_state() -> None:
    replicas = await started()
    await carry_out(replicas, [LEAD])
    nothing = command(state(), numbers=(), full_state=True, store_revision=20)
    await replicas.commands.leader_and_isr(nothing)
    await carry_out(replicas, [LEAD_AGAIN])
    assert list(replicas.manager.all()) == []


def test_the_record_of_stopped_replicas_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_registry, "MAX_REMEMBERED", 2)
    stopped = StoppedReplicas()
    for number in range(3):
        stopped.stopped(ReplicaKey(TOPIC_ID, number), 10)
    late = [stopped.is_late(ReplicaKey(TOPIC_ID, number), 9) for number in range(3)]
    assert late == [False, True, True]


def test_the_newest_stop_counts_until_the_replica_is_here_again() -> None:
    stopped = StoppedReplicas()
    stopped.stopped(KEY, 12)
    stopped.stopped(KEY, 10)
    assert [stopped.is_late(KEY, revision) for revision in (12, 13)] == [True, False]
    stopped.started(KEY)
    assert not stopped.is_late(KEY, 12)
