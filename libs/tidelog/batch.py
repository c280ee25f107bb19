"""The checksums of a batch, and the fields that its leader stamps on it.

The layouts are those that `record_batch.proto` documents; all little endian.
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
# are the damaged bytes, or a part of them: followers copy it, consumers are never sent it.
DAMAGED_CODEC = 255
# When a batch was appended whose header is lost.
UNKNOWN_MS = 0
# A RecordBatch with one record that has neither key nor value: value_lengths = [-1].
_FENCE_RECORDS = b"\x22\x01\x01"

_PRODUCER_FIELDS = struct.Struct("<Biqqqii")
_BROKER_FIELDS = struct.Struct("<qiqI")


def producer_crc32c(header: BatchHeader, records: bytes) -> int:
    """CRC32C over what the producer set."""
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
    """CRC32C over what the leader set, bound to the producer's own CRC (interleaving 17
    of docs/internals/interleavings.md)."""
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
    """A batch as a producer sends it: with its CRC and no offset yet."""
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
    """From where on no batch of an older epoch of a named producer follows
    (`record_batch.proto`, base_sequence). It has no sequence, and a record that is
    nobody's."""
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
    """Whether readers skip the batch."""
    return header.base_sequence == NO_SEQUENCE and header.producer_id != NO_PRODUCER_ID


def new_damaged_batch(
    data: bytes, *, first_offset: int, next_offset: int, leader_epoch: int, append_time_ms: int
) -> Batch:
    """A batch in place of those from `first_offset` to `next_offset`, which cannot be read."""
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
    """Whether the records of the batch are lost."""
    return header.codec == DAMAGED_CODEC


def stamp(batch: Batch, *, base_offset: int, leader_epoch: int, append_time_ms: int) -> Batch:
    """The batch as its leader stores it; `records` is the same object."""
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
    """The batch with one timestamp for all of its records, which must have no deltas of their own
    (`record_batch.without_deltas`)."""
    header = batch.header._replace(base_timestamp_ms=timestamp_ms, max_timestamp_ms=timestamp_ms)
    return Batch(
        header._replace(crc32c=producer_crc32c(header, batch.records)),
        batch.records,
    )


def is_intact(batch: Batch) -> bool:
    """Whether both checksums hold, as they must for a batch that a leader stored."""
    header = batch.header
    return (
        broker_crc32c(header.base_offset, header.leader_epoch, header.append_time_ms, header.crc32c)
        == header.broker_crc32c
        and producer_crc32c(header, batch.records) == header.crc32c
    )
