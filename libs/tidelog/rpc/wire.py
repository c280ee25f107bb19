"""Converts shared values to and from their wire form."""

from __future__ import annotations

from tidelog.errors import OUTCOME_UNKNOWN, ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import Batch, BatchHeader, LeaderHint
from tidelog.v1 import broker_pb2, errors_pb2, record_batch_pb2


def batch_to_wire(batch: Batch) -> record_batch_pb2.Batch:
    return record_batch_pb2.Batch(header=header_to_wire(batch.header), records=batch.records)


def header_to_wire(header: BatchHeader) -> record_batch_pb2.BatchHeader:
    return record_batch_pb2.BatchHeader(
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        append_time_ms=header.append_time_ms,
        broker_crc32c=header.broker_crc32c,
        crc32c=header.crc32c,
        codec=header.codec,  # type: ignore[arg-type]  # the enums have equal values
        record_count=header.record_count,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def batch_from_wire(wire: record_batch_pb2.Batch) -> Batch:
    """Converts a batch. Copies the records once, out of the message. Checks nothing."""
    header = wire.header
    return Batch(
        BatchHeader(
            header.base_offset,
            header.leader_epoch,
            header.append_time_ms,
            header.broker_crc32c,
            header.crc32c,
            header.codec,
            header.record_count,
            header.base_timestamp_ms,
            header.max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        ),
        wire.records,
    )


def error_to_wire(error: TidelogError) -> errors_pb2.Error:
    leader = None
    if error.leader is not None:
        leader = errors_pb2.LeaderHint(
            broker_id=error.leader.broker_id,
            leader_epoch=error.leader.leader_epoch,
            address=error.leader.address,
        )
    damaged = None
    if isinstance(error, RecordsDamagedError):
        damaged = errors_pb2.DamagedRecords(
            first_offset=error.first_offset, next_offset=error.next_offset
        )
    by_code = error.outcome_unknown == (error.code in OUTCOME_UNKNOWN)
    return errors_pb2.Error(
        code=error.code.value,  # type: ignore[arg-type]  # the enums have equal values
        message=error.message,
        leader=leader,
        damaged=damaged,
        outcome_unknown=None if by_code else error.outcome_unknown,
    )


def error_from_wire(wire: errors_pb2.Error) -> TidelogError:
    """A code that this version does not know becomes INTERNAL."""
    try:
        code = ErrorCode(wire.code)
    except ValueError:
        code = ErrorCode.INTERNAL
    outcome_unknown = wire.outcome_unknown if wire.HasField("outcome_unknown") else None
    if code is ErrorCode.RECORDS_DAMAGED and wire.HasField("damaged"):
        return RecordsDamagedError(
            code,
            wire.message,
            first_offset=wire.damaged.first_offset,
            next_offset=wire.damaged.next_offset,
            outcome_unknown=outcome_unknown,
        )
    leader = None
    if wire.HasField("leader"):
        leader = LeaderHint(wire.leader.broker_id, wire.leader.leader_epoch, wire.leader.address)
    return TidelogError(code, wire.message, leader, outcome_unknown=outcome_unknown)


def partition_count(topic: broker_pb2.TopicMetadata) -> int:
    """Returns the number of a topic's partitions. If a broker does not report it, it is the number
    of partitions that the broker lists."""
    return max(topic.partition_count, len(topic.partitions))
