"""The trace of a command's call, and the trace of its changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Change
from tidelog_runtime.command_traces import shared_trace_id
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member
from tidelog_runtime.replica_control import (
    DescribeReplicasCommand,
    LeaderAndIsrCommand,
    PartitionCommand,
    StopPartition,
    StopReplicaCommand,
)
from tidelog_runtime.replica_control_codec import with_trace_of_call

A, B = "a" * 32, "b" * 32
STATE = LeaderAndIsr("id", (1, 2), 4, 1, 3, (Member(1, 10),), (), 2)


def change(number: int, trace_id: str) -> Change:
    return Change(f"c4-{number}", Cause.REQUESTED, 1_000, trace_id)


def lead(*trace_ids: str, own: str = "") -> LeaderAndIsrCommand:
    """A change for each partition, and one of the command itself."""
    partitions = [
        PartitionCommand(
            TopicPartition("t", number), STATE.with_change(change(number, trace_id)), 33, {}
        )
        for number, trace_id in enumerate(trace_ids)
    ]
    return LeaderAndIsrCommand(1, 4, 10, False, partitions, {}, 34, change(99, own))


def stop(*trace_ids: str) -> StopReplicaCommand:
    partitions = [
        StopPartition(TopicPartition("t", number), "id", 3, 33, True, change(number, trace_id))
        for number, trace_id in enumerate(trace_ids)
    ]
    return StopReplicaCommand(1, 4, 10, partitions)


def changes(command: LeaderAndIsrCommand | StopReplicaCommand) -> list[Change]:
    if isinstance(command, StopReplicaCommand):
        return [partition.change for partition in command.partitions]
    return [command.change, *(partition.state.change for partition in command.partitions)]


@pytest.mark.parametrize("make", [lead, stop])
def test_a_trace_shared_by_all_changes_that_have_one_is_that_of_the_call(make: type) -> None:
    assert shared_trace_id(make(A, "", A)) == A
    assert shared_trace_id(make("", A)) == A


@pytest.mark.parametrize("make", [lead, stop])
def test_changes_of_several_traces_make_a_call_without_a_trace(make: type) -> None:
    assert shared_trace_id(make(A, "", B)) == ""
    assert shared_trace_id(make(A, B, A)) == ""


def test_the_change_of_a_full_state_counts_too() -> None:
    assert shared_trace_id(lead("", own=A)) == A
    assert shared_trace_id(lead(B, own=A)) == ""


def test_without_changes_there_is_no_trace() -> None:
    assert shared_trace_id(lead()) == shared_trace_id(stop("", "")) == ""
    assert shared_trace_id(DescribeReplicasCommand(1, 4, 10, [("id", 0)])) == ""


@pytest.mark.parametrize("made", [lead("", ""), stop("", "")])
async def test_changes_without_a_trace_get_that_of_the_call(made: Any) -> None:
    assert changes(await with_trace_of_call(made, A)) == [
        each._replace(trace_id=A) for each in changes(made)
    ]


async def test_only_the_trace_is_taken_from_the_call() -> None:
    made = lead("", "")
    taken = await with_trace_of_call(made, A)
    assert replace(taken, partitions=(), change=made.change) == replace(made, partitions=())
    assert taken.partitions == made.partitions  # changes take no part in comparisons


@pytest.mark.parametrize("made", [lead("", B), lead("", own=B), stop("", B)])
async def test_one_change_with_a_trace_makes_the_traces_of_the_changes_count(made: Any) -> None:
    assert await with_trace_of_call(made, A) is made


async def test_a_call_without_a_trace_changes_nothing() -> None:
    made = stop("")
    assert await with_trace_of_call(made, "") is made
