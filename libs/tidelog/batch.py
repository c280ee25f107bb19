"""Checksums of a batch, and the fields that its leader stamps on it.

`record_batch.proto` documents the layouts. All integers are little endian.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from tidelog.model import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Batch,
    BatchHeader,
    Codec,
)

NO_SEQUENCE = -1
# The codec of a batch whose records were damaged on the last disk that held them. Its `records`
# are the damaged bytes or a part of them. Followers copy it; consumers never receive it.
DAMAGED_CODEC = 255
# Append time of a batch whose header is lost.
UNKNOWN_MS = 0
# A RecordBatch with one record that has neither key nor value: value_lengths = [-1].
_FENCE_RECORDS = b"\x22\x01\x01"

_PRODUCER_FIELDS = struct.Struct("<Biqqqii")
_BROKER_FIELDS = struct.Struct("<qiqI")


def producer_crc32c(header: BatchHeader, records: bytes) -> int:
    """Returns the CRC32C of the fields that the producer sets and of the records."""
    fields = _PRODUCER_FIELDS.pack(
        header.codec,
        header.record_count,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
    return crc32c(records, crc32c(fields))


def broker_crc32c(base_offset: int, leader_epoch: int, append_time_ms: int, crc: int) -> int:
    """Returns the CRC32C of the fields that the leader sets and of the producer's CRC
    (rule `second-crc-covers-broker-fields`)."""
    return crc32c(_BROKER_FIELDS.pack(base_offset, leader_epoch, append_time_ms, crc))


def new_batch(
    records: bytes,
    *,
    codec: Codec,
    record_count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> Batch:
    """Returns a batch as a producer sends it: with its CRC, without an offset."""
    header = BatchHeader(
        base_offset=0,
        leader_epoch=0,
        append_time_ms=0,
        broker_crc32c=0,
        crc32c=0,
        codec=codec,
        record_count=record_count,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return Batch(header._replace(crc32c=producer_crc32c(header, records)), records)


def new_fence(producer_id: int, producer_epoch: int, now_ms: int) -> Batch:
    """Returns a producer fence: no batch of an older epoch of this named producer follows it
    (`record_batch.proto`, base_sequence). It has no sequence and one null record."""
    return new_batch(
        _FENCE_RECORDS,
        codec=Codec.NONE,
        record_count=1,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def is_fence(header: BatchHeader) -> bool:
    """Whether the batch is a producer fence, which readers skip."""
    return header.base_sequence == NO_SEQUENCE and header.producer_id != NO_PRODUCER_ID


def new_damaged_batch(
    data: bytes, *, first_offset: int, next_offset: int, leader_epoch: int, append_time_ms: int
) -> Batch:
    """Returns a placeholder for unreadable batches, from `first_offset` to `next_offset`
    (excluded)."""
    header = BatchHeader(
        base_offset=first_offset,
        leader_epoch=leader_epoch,
        append_time_ms=append_time_ms,
        broker_crc32c=0,
        crc32c=0,
        codec=DAMAGED_CODEC,
        record_count=next_offset - first_offset,
        base_timestamp_ms=append_time_ms,
        max_timestamp_ms=append_time_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
        base_sequence=NO_SEQUENCE,
    )
    batch = Batch(header._replace(crc32c=producer_crc32c(header, data)), data)
    return stamp(
        batch, base_offset=first_offset, leader_epoch=leader_epoch, append_time_ms=append_time_ms
    )


def is_damaged(header: BatchHeader) -> bool:
    """Whether the batch is a placeholder for damaged records."""
    return header.codec == DAMAGED_CODEC


def stamp(batch: Batch, *, base_offset: int, leader_epoch: int, append_time_ms: int) -> Batch:
    """Returns the batch as its leader stores it; `records` is the same object."""
    header = batch.header
    return Batch(
        BatchHeader(
            base_offset,
            leader_epoch,
            append_time_ms,
            broker_crc32c(base_offset, leader_epoch, append_time_ms, header.crc32c),
            *header[4:],
        ),
        batch.records,
    )


def retimed(batch: Batch, timestamp_ms: int) -> Batch:
    """Returns the batch with one timestamp for all of its records, which must have no timestamp
    deltas (`record_batch.without_deltas`)."""
    header = batch.header._replace(base_timestamp_ms=timestamp_ms, max_timestamp_ms=timestamp_ms)
    return Batch(
        header._replace(crc32c=producer_crc32c(header, batch.records)),
        batch.records,
    )


def is_intact(batch: Batch) -> bool:
    """Whether both checksums match, as they do in every batch that a leader stored."""
    header = batch.header
    return (
        broker_crc32c(header.base_offset, header.leader_epoch, header.append_time_ms, header.crc32c)
        == header.broker_crc32c
        and producer_crc32c(header, batch.records) == header.crc32c
    )
