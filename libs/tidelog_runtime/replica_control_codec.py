"""Converts the commands of `replica_control` to and from their wire form, at both ends.

A full state has thousands of partitions, so the conversions yield to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.model import TopicPartition
from tidelog.rpc.wire import error_from_wire, error_to_wire
from tidelog.state_changes.event import Cause, Change
from tidelog.v1 import replica_control_pb2 as pb
from tidelog_runtime.command_traces import has_trace
from tidelog_runtime.cooperative import (
    ITEMS_PER_SLICE,
    QUICK_ITEMS_PER_SLICE,
    extend_yielding,
    map_yielding,
)
from tidelog_runtime.metadata.schema import (
    STATES_REMEMBERED,
    Fields,
    LeaderAndIsr,
    Member,
    Moving,
)
from tidelog_runtime.replica_control import (
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    LeaderAddress,
    LeaderAndIsrCommand,
    LogExtent,
    PartitionCommand,
    PartitionResult,
    ReplicaSummary,
    StopPartition,
    StopReplicaCommand,
)

# Units of work between yields: decoding a new state costs as much as `_WORK_OF_NEW_STATE` known
# ones, and so many members or settings cost as much as one known state.
_WORK_OF_NEW_STATE = 8
_LISTED_PER_WORK = 4
_EPOCHS_PER_ITEM = 8

_Command = TypeVar("_Command", LeaderAndIsrCommand, StopReplicaCommand)
StateAt = Callable[[TopicPartition, int], LeaderAndIsr | None]


def _members_to_wire(members: Iterable[Member]) -> list[pb.ReplicaMember]:
    return [pb.ReplicaMember(broker_id=m.broker_id, broker_epoch=m.broker_epoch) for m in members]


def _members_from_wire(wire: Iterable[pb.ReplicaMember]) -> tuple[Member, ...]:
    return tuple(sorted(Member(m.broker_id, m.broker_epoch) for m in wire))


def change_to_wire(change: Change) -> pb.StateChangeOrigin:
    return pb.StateChangeOrigin(
        id=change.id,
        cause=change.cause.value,
        requested_at_ms=change.requested_at_ms,
        trace_id=change.trace_id,
    )


def change_from_wire(wire: pb.StateChangeOrigin) -> Change:
    return Change(wire.id, Cause.parse(wire.cause), wire.requested_at_ms, wire.trace_id)


def _fill_partition(wire: pb.PartitionState, command: PartitionCommand) -> None:
    wire.CopyFrom(_state_to_wire(command.state.fields))
    wire.topic, wire.partition = command.partition
    wire.revision = command.revision
    wire.config_revision = command.config_revision
    if command.config:
        wire.config.update(command.config)


# Cached as the JSON form is: a failover sends thousands of equal states. Callers must not modify
# the cached messages.
@lru_cache(maxsize=STATES_REMEMBERED)
def _state_to_wire(fields: Fields) -> pb.PartitionState:
    state = LeaderAndIsr(*fields)
    return pb.PartitionState(
        topic_id=state.topic_id,
        replicas=state.replicas,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        controller_epoch=state.controller_epoch,
        isr=_members_to_wire(state.isr),
        eligible=_members_to_wire(state.eligible),
        min_isr=state.min_isr,
        unclean_leader_epoch=state.unclean_leader_epoch,
        change=change_to_wire(state.change),
        unclean_lost_records=(
            None if state.unclean_lost_records == NOT_KNOWN else state.unclean_lost_records
        ),
        moving=pb.MovingReplicas(**state.moving._asdict()) if state.moving else None,
        unclean_elected_at_ms=state.unclean_elected_at_ms,
    )


async def _partitions_from_wire(
    wire: Iterable[pb.PartitionState], known: StateAt
) -> list[PartitionCommand]:
    made: list[PartitionCommand] = []
    work = 0
    for each in wire:
        if work >= QUICK_ITEMS_PER_SLICE:
            work = 0
            await asyncio.sleep(0)
        partition, revision = TopicPartition(each.topic, each.partition), each.revision
        state = known(partition, revision)
        work += 1 + len(each.config) // _LISTED_PER_WORK
        if state is None:
            work += _WORK_OF_NEW_STATE + _listed(each) // _LISTED_PER_WORK
            state = _state_from_wire(each)
        made.append(
            PartitionCommand(partition, state, revision, dict(each.config), each.config_revision)
        )
    return made


def _listed(wire: pb.PartitionState) -> int:
    """Returns the number of members and replicas of the state."""
    moving = len(wire.moving.original) + len(wire.moving.target)
    return len(wire.isr) + len(wire.eligible) + len(wire.replicas) + moving


def _state_from_wire(wire: pb.PartitionState) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=wire.topic_id,
        replicas=tuple(wire.replicas),
        controller_epoch=wire.controller_epoch,
        leader=wire.leader,
        leader_epoch=wire.leader_epoch,
        isr=_members_from_wire(wire.isr),
        eligible=_members_from_wire(wire.eligible),
        min_isr=wire.min_isr,
        unclean_leader_epoch=wire.unclean_leader_epoch,
        moving=_moving_from_wire(wire.moving) if wire.HasField("moving") else None,
        unclean_lost_records=(
            wire.unclean_lost_records if wire.HasField("unclean_lost_records") else NOT_KNOWN
        ),
        unclean_elected_at_ms=wire.unclean_elected_at_ms,
        change=change_from_wire(wire.change),
    )


def _moving_from_wire(wire: pb.MovingReplicas) -> Moving:
    return Moving(wire.operation, tuple(wire.original), tuple(wire.target))


async def leader_and_isr_to_wire(command: LeaderAndIsrCommand) -> pb.LeaderAndIsrRequest:
    wire = pb.LeaderAndIsrRequest(
        controller_id=command.controller_id,
        controller_epoch=command.controller_epoch,
        broker_epoch=command.broker_epoch,
        full_state=command.full_state,
        leaders=[
            pb.LeaderAddress(broker_id=b, address=a.address, broker_epoch=a.broker_epoch)
            for b, a in command.leaders.items()
        ],
        store_revision=command.store_revision,
        change=change_to_wire(command.change),
        unreadable_topics=command.unreadable_topics,
    )
    # Filled in place: a message that is made first and then added would be copied.
    await map_yielding(
        lambda each: _fill_partition(wire.partitions.add(), each),
        command.partitions,
        QUICK_ITEMS_PER_SLICE,
    )
    return wire


async def leader_and_isr_to_bytes(command: LeaderAndIsrCommand) -> bytes:
    """Returns the serialized command.

    It is serialized in slices, because serializing a full state at once blocks the event loop
    for too long.
    """
    head = await leader_and_isr_to_wire(replace(command, partitions=()))
    slices = [head.SerializeToString()]
    for start in range(0, len(command.partitions), QUICK_ITEMS_PER_SLICE):
        some = pb.LeaderAndIsrRequest()
        for each in command.partitions[start : start + QUICK_ITEMS_PER_SLICE]:
            _fill_partition(some.partitions.add(), each)
        slices.append(some.SerializeToString())
        await asyncio.sleep(0)
    # Concatenated messages parse as their merge.
    return b"".join(slices)


async def leader_and_isr_from_wire(
    wire: pb.LeaderAndIsrRequest, known: StateAt = lambda *_: None
) -> LeaderAndIsrCommand:
    """Decodes a command.

    - `known`: returns the state of a partition at a revision if the receiver already has it;
      None: the state has to be decoded.
    """
    return replace(
        leader_and_isr_head(wire),
        partitions=await _partitions_from_wire(wire.partitions, known),
        leaders=dict(await map_yielding(_leader_from_wire, wire.leaders, QUICK_ITEMS_PER_SLICE)),
        unreadable_topics=tuple(wire.unreadable_topics),
    )


def leader_and_isr_head(wire: pb.LeaderAndIsrRequest) -> LeaderAndIsrCommand:
    """Decodes the command without its lists."""
    return LeaderAndIsrCommand(
        controller_id=wire.controller_id,
        controller_epoch=wire.controller_epoch,
        broker_epoch=wire.broker_epoch,
        full_state=wire.full_state,
        partitions=(),
        leaders={},
        store_revision=wire.store_revision,
        change=change_from_wire(wire.change),
    )


def _leader_from_wire(wire: pb.LeaderAddress) -> tuple[int, LeaderAddress]:
    return wire.broker_id, LeaderAddress(wire.address, wire.broker_epoch)


async def with_trace_of_call(command: _Command, trace_id: str) -> _Command:
    """Returns the command with `trace_id`, from the call's metadata, in all of its changes.

    A command in which a change already has a trace id stays unchanged.
    """
    if not trace_id or has_trace(command):
        return command
    if isinstance(command, StopReplicaCommand):
        stops = await map_yielding(
            lambda stop: stop._replace(change=stop.change._replace(trace_id=trace_id)),
            command.partitions,
        )
        return replace(command, partitions=stops)
    return replace(
        command,
        partitions=await map_yielding(
            lambda partition: partition._replace(
                state=partition.state.with_change(
                    partition.state.change._replace(trace_id=trace_id)
                )
            ),
            command.partitions,
        ),
        change=command.change._replace(trace_id=trace_id),
    )


async def stop_replica_to_wire(command: StopReplicaCommand) -> pb.StopReplicaRequest:
    return pb.StopReplicaRequest(
        controller_id=command.controller_id,
        controller_epoch=command.controller_epoch,
        broker_epoch=command.broker_epoch,
        partitions=await map_yielding(_stop_to_wire, command.partitions),
    )


def _stop_to_wire(stop: StopPartition) -> pb.StopReplicaPartition:
    return pb.StopReplicaPartition(
        topic=stop.partition.topic,
        topic_id=stop.topic_id,
        partition=stop.partition.partition,
        leader_epoch=stop.leader_epoch,
        revision=stop.revision,
        delete=stop.delete,
        change=change_to_wire(stop.change),
    )


async def stop_replica_from_wire(wire: pb.StopReplicaRequest) -> StopReplicaCommand:
    return StopReplicaCommand(
        controller_id=wire.controller_id,
        controller_epoch=wire.controller_epoch,
        broker_epoch=wire.broker_epoch,
        partitions=await map_yielding(_stop_from_wire, wire.partitions),
    )


def _stop_from_wire(wire: pb.StopReplicaPartition) -> StopPartition:
    return StopPartition(
        TopicPartition(wire.topic, wire.partition),
        wire.topic_id,
        wire.leader_epoch,
        wire.revision,
        wire.delete,
        change_from_wire(wire.change),
    )


def _result_to_wire(result: PartitionResult) -> pb.PartitionStateResult:
    return pb.PartitionStateResult(
        topic_id=result.topic_id,
        partition=result.partition,
        revision=result.revision,
        error=error_to_wire(result.error) if result.error else None,
    )


def _result_from_wire(wire: pb.PartitionStateResult) -> PartitionResult:
    return PartitionResult(
        wire.topic_id,
        wire.partition,
        wire.revision,
        error_from_wire(wire.error) if wire.HasField("error") else None,
    )


async def leader_and_isr_result_to_wire(result: CommandResult) -> pb.LeaderAndIsrResponse:
    wire = pb.LeaderAndIsrResponse(error=error_to_wire(result.error) if result.error else None)
    await extend_yielding(
        wire.partitions, _result_to_wire, result.partitions, QUICK_ITEMS_PER_SLICE
    )
    return wire


async def stop_replica_result_to_wire(result: CommandResult) -> pb.StopReplicaResponse:
    wire = pb.StopReplicaResponse(error=error_to_wire(result.error) if result.error else None)
    await extend_yielding(
        wire.partitions, _result_to_wire, result.partitions, QUICK_ITEMS_PER_SLICE
    )
    return wire


async def result_from_wire(wire: pb.LeaderAndIsrResponse | pb.StopReplicaResponse) -> CommandResult:
    return CommandResult(
        error=error_from_wire(wire.error) if wire.HasField("error") else None,
        partitions=await map_yielding(_result_from_wire, wire.partitions, QUICK_ITEMS_PER_SLICE),
    )


async def describe_replicas_to_wire(command: DescribeReplicasCommand) -> pb.DescribeReplicasRequest:
    return pb.DescribeReplicasRequest(
        controller_id=command.controller_id,
        controller_epoch=command.controller_epoch,
        broker_epoch=command.broker_epoch,
        partitions=await map_yielding(
            lambda key: pb.DescribeReplicasPartition(topic_id=key[0], partition=key[1]),
            command.partitions,
            QUICK_ITEMS_PER_SLICE,
        ),
    )


async def describe_replicas_from_wire(wire: pb.DescribeReplicasRequest) -> DescribeReplicasCommand:
    return DescribeReplicasCommand(
        controller_id=wire.controller_id,
        controller_epoch=wire.controller_epoch,
        broker_epoch=wire.broker_epoch,
        # Without duplicates: else a request of a few kB could have an answer of hundreds of MB.
        partitions=list(
            dict.fromkeys(
                await map_yielding(
                    lambda each: (each.topic_id, each.partition),
                    wire.partitions,
                    QUICK_ITEMS_PER_SLICE,
                )
            )
        ),
    )


async def describe_replicas_result_to_wire(
    result: DescribeReplicasResult, asked: Sequence[tuple[str, int]]
) -> pb.DescribeReplicasResponse:
    """Encodes the result with one entry for each of the `asked` partitions of the request."""
    if result.error is not None:
        return pb.DescribeReplicasResponse(error=error_to_wire(result.error))
    found = {(r.topic_id, r.partition): r for r in result.replicas}
    wire = pb.DescribeReplicasResponse()
    work = 0
    for key in asked:
        described = _description(key, found.get(key))
        wire.partitions.append(described)
        epochs = len(described.epochs) + len(described.before_cut.epochs)
        # A few epochs cost as much as a replica with a single one.
        work += 1 + epochs // _EPOCHS_PER_ITEM
        if work >= ITEMS_PER_SLICE:
            work = 0
            await asyncio.sleep(0)
    return wire


def _description(key: tuple[str, int], found: ReplicaSummary | None) -> pb.ReplicaDescription:
    topic_id, partition = key
    if found is None:
        missing = TidelogError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"there is no replica of partition {partition} of the topic with id {topic_id} here",
        )
        return pb.ReplicaDescription(
            topic_id=topic_id, partition=partition, error=error_to_wire(missing)
        )
    return pb.ReplicaDescription(
        topic_id=topic_id,
        partition=partition,
        revision=found.revision,
        log_start_offset=found.log_start_offset,
        log_end_offset=found.log_end_offset,
        epochs=_epochs_to_wire(found.epochs),
        before_cut=(
            None
            if found.before_cut is None
            else pb.LogExtent(
                log_end_offset=found.before_cut.log_end_offset,
                epochs=_epochs_to_wire(found.before_cut.epochs),
            )
        ),
        high_watermark=found.high_watermark if found.high_watermark >= 0 else None,
        size_bytes=found.size_bytes if found.size_bytes >= 0 else None,
        lacks=[pb.ReplicaLack(broker_id=b, bytes=size) for b, size in found.lacks],
    )


def _epochs_to_wire(epochs: Sequence[tuple[int, int]]) -> list[pb.LeaderEpochStart]:
    return [pb.LeaderEpochStart(leader_epoch=e, start_offset=s) for e, s in epochs]


def _epochs_from_wire(wire: Iterable[pb.LeaderEpochStart]) -> tuple[tuple[int, int], ...]:
    return tuple((epoch.leader_epoch, epoch.start_offset) for epoch in wire)


async def describe_replicas_result_from_wire(
    wire: pb.DescribeReplicasResponse,
) -> DescribeReplicasResult:
    return DescribeReplicasResult(
        error=error_from_wire(wire.error) if wire.HasField("error") else None,
        replicas=await map_yielding(
            _summary_from_wire, (p for p in wire.partitions if not p.HasField("error"))
        ),
    )


def _summary_from_wire(wire: pb.ReplicaDescription) -> ReplicaSummary:
    return ReplicaSummary(
        wire.topic_id,
        wire.partition,
        wire.revision,
        wire.log_start_offset,
        wire.log_end_offset,
        _epochs_from_wire(wire.epochs),
        LogExtent(wire.before_cut.log_end_offset, _epochs_from_wire(wire.before_cut.epochs))
        if wire.HasField("before_cut")
        else None,
        wire.high_watermark if wire.HasField("high_watermark") else -1,
        wire.size_bytes if wire.HasField("size_bytes") else -1,
        tuple((lack.broker_id, lack.bytes) for lack in wire.lacks),
    )
