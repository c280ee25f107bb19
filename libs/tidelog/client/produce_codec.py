"""Produce requests and responses on the wire."""

from __future__ import annotations

from tidelog.client.delivery import Appended, Outcome
from tidelog.client.sealed_batch import Group, Request
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import broker_pb2


def request_to_wire(request: Request, acks: Acks, timeout_ms: int) -> broker_pb2.ProduceRequest:
    wire = broker_pb2.ProduceRequest(
        acks=acks,  # type: ignore[arg-type]  # the enums have equal values
        timeout_ms=timeout_ms,
    )
    for group in request.groups:
        partition = wire.partitions.add(
            topic=group.partition.topic,
            partition=group.partition.partition,
            topic_id=group.leader.topic_id,
        )
        for sealed in group.batches:
            assert sealed.batch is not None, "a batch is made when it is drained"
            header = sealed.batch.header
            # Built in place: a message that is built first and then added is copied again.
            entry = partition.batches.add(records=sealed.batch.records)
            target = entry.header
            target.crc32c = header.crc32c
            target.codec = header.codec  # type: ignore[assignment]  # as above
            target.record_count = header.record_count
            target.base_timestamp_ms = header.base_timestamp_ms
            target.max_timestamp_ms = header.max_timestamp_ms
            target.producer_id = header.producer_id
            target.producer_epoch = header.producer_epoch
            target.base_sequence = header.base_sequence
    return wire


def outcomes_from_wire(
    request: Request, answer: broker_pb2.ProduceResponse
) -> list[tuple[Group, Outcome]]:
    """Returns the outcome of each group, in the order of the request."""
    by_partition = {(result.topic, result.partition): result for result in answer.partitions}
    outcomes: list[tuple[Group, Outcome]] = []
    for group in request.groups:
        result = by_partition.get((group.partition.topic, group.partition.partition))
        outcome: Outcome
        if result is None:
            outcome = TidelogError(
                ErrorCode.INTERNAL,
                f"{request.leader.address} answered without a result for {group.partition}",
            )
        elif result.HasField("error"):
            outcome = error_from_wire(result.error)
        else:
            outcome = Appended(result.base_offset, result.leader_epoch, result.append_time_ms)
        outcomes.append((group, outcome))
    return outcomes
