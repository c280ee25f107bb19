"""Fetch and ListOffsets requests and responses on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from tidelog.client.fetch_state import Fetched, FetchPlan, Want
from tidelog.client.retry import Leader
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.rpc.wire import batch_from_wire, error_from_wire
from tidelog.v1 import broker_pb2


class FoundOffset(NamedTuple):
    """An offset (-1: no record is at or after the time) with the leader epoch and topic id of the
    leader that answered."""

    offset: int
    leader_epoch: int
    topic_id: str


class FetchOutcome(NamedTuple):
    want: Want
    leader: Leader
    fetched: Fetched | None
    error: TidelogError | None


def fetch_to_wire(
    plan: FetchPlan, *, max_wait_ms: int, min_bytes: int, max_bytes: int
) -> broker_pb2.FetchRequest:
    wire = broker_pb2.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes
    )
    for want, leader in plan.wants:
        topic, partition = want.assigned.partition
        wire.partitions.add(
            topic=topic,
            partition=partition,
            topic_id=leader.topic_id,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=want.offset,
            max_bytes=min(want.max_bytes, max_bytes),
        )
    return wire


def fetch_from_wire(plan: FetchPlan, answer: broker_pb2.FetchResponse) -> list[FetchOutcome]:
    by_partition = {
        TopicPartition(result.topic, result.partition): result for result in answer.partitions
    }
    outcomes: list[FetchOutcome] = []
    for want, leader in plan.wants:
        result = by_partition.get(want.assigned.partition)
        if result is None:
            error = _no_result(leader, want.assigned.partition)
            outcomes.append(FetchOutcome(want, leader, None, error))
            continue
        fetched = Fetched(
            result.leader_epoch,
            result.high_watermark,
            result.log_start_offset,
            [batch_from_wire(batch) for batch in result.batches],
        )
        failed = error_from_wire(result.error) if result.HasField("error") else None
        outcomes.append(FetchOutcome(want, leader, fetched, failed))
    return outcomes


def offsets_to_wire(
    partitions: Sequence[tuple[TopicPartition, Leader]],
    position: OffsetPosition,
    timestamp_ms: int,
) -> broker_pb2.ListOffsetsRequest:
    wire = broker_pb2.ListOffsetsRequest()
    for (topic, partition), leader in partitions:
        wire.partitions.add(
            topic=topic,
            partition=partition,
            topic_id=leader.topic_id,
            current_leader_epoch=leader.leader_epoch,
            position=cast(broker_pb2.OffsetPosition.ValueType, position.value),
            timestamp_ms=timestamp_ms,
        )
    return wire


def offsets_from_wire(
    partitions: Sequence[tuple[TopicPartition, Leader]], answer: broker_pb2.ListOffsetsResponse
) -> list[tuple[TopicPartition, Leader, FoundOffset | TidelogError]]:
    """Returns offsets and errors, in the order of `partitions`."""
    by_partition = {
        TopicPartition(result.topic, result.partition): result for result in answer.partitions
    }
    outcomes: list[tuple[TopicPartition, Leader, FoundOffset | TidelogError]] = []
    for partition, leader in partitions:
        result = by_partition.get(partition)
        outcome: FoundOffset | TidelogError
        if result is None:
            outcome = _no_result(leader, partition)
        elif result.HasField("error"):
            outcome = error_from_wire(result.error)
        else:
            outcome = FoundOffset(result.offset, result.leader_epoch, leader.topic_id)
        outcomes.append((partition, leader, outcome))
    return outcomes


def _no_result(leader: Leader, partition: TopicPartition) -> TidelogError:
    return TidelogError(
        ErrorCode.INTERNAL, f"{leader.address} answered without a result for {partition}"
    )
