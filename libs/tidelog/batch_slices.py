"""A batch of very many records, opened slice by slice. Pure.

Beside the decompressed message, which `max_decompressed_bytes` bounds, only one slice's objects are
held. Logs may hold batches that were written before `record_limits` applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog import batch_layout
from tidelog.batch_layout import Layout, Span
from tidelog.column_checks import check_ascending, check_lengths, keys_without_lengths
from tidelog.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Plain, stated_size
from tidelog.model import Batch, BatchHeader, Codec
from tidelog.record_batch import (
    JoinedColumns,
    decode_joined,
    decompressed,
    headers_by_record,
)
from tidelog.record_limits import invalid_batch
from tidelog.v1 import record_batch_pb2

# Records of a slice. Python makes objects of them in about ten milliseconds.
SLICE_RECORDS = 16_384
# A batch that takes more than this to open is opened off the event loop.
CHEAP_RECORDS = 4_096
CHEAP_BYTES = 256 << 10
# Bytes of packed entries that are parsed at once.
_CHUNK_BYTES = 16 << 10

_Pb = record_batch_pb2.RecordBatch


class BatchSlice(NamedTuple):
    """`first`: position of its first record within the batch."""

    first: int
    joined: JoinedColumns


def is_costly_to_open(batch: Batch) -> bool:
    """Whether opening it may hold an event loop for more than a few milliseconds."""
    header = batch.header
    if header.record_count > CHEAP_RECORDS or len(batch.records) > CHEAP_BYTES:
        return True
    if header.codec == Codec.NONE:
        return False
    # Not stated, or not true: every codec expands a thousand times at the most but zstd.
    stated = stated_size(header.codec, batch.records)
    return stated is None or stated > CHEAP_BYTES


def decode_slices(
    batch: Batch,
    *,
    max_records: int = SLICE_RECORDS,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    with_headers: bool = True,
) -> Iterator[BatchSlice]:
    """The batch's records in order, at most `max_records` at a time; headers count from the slice's
    first record. Raises `TidelogError` (INVALID_BATCH), perhaps after some slices."""
    if batch.header.record_count <= max_records:
        joined = decode_joined(
            batch, max_decompressed_bytes=max_decompressed_bytes, with_headers=with_headers
        )
        return iter((BatchSlice(0, joined),))
    plain = decompressed(batch, max_decompressed_bytes)
    layout = batch_layout.find_layout(plain)
    return _slices(plain, layout, batch.header, max_records, with_headers)


def _slices(
    plain: Plain, layout: Layout, header: BatchHeader, max_records: int, with_headers: bool
) -> Iterator[BatchSlice]:
    count = header.record_count
    values = _Contents("value", plain, layout.values, layout, _Pb.VALUE_LENGTHS_FIELD_NUMBER)
    keys = _Contents("key", plain, layout.keys, layout, _Pb.KEY_LENGTHS_FIELD_NUMBER)
    deltas = _Entries(plain, layout, _Pb.TIMESTAMP_DELTAS_MS_FIELD_NUMBER)
    headers = _Headers(plain, layout.headers if with_headers else (), count)
    if keys.is_empty and layout.keys.size:
        raise keys_without_lengths(layout.keys.size)
    has_keys, has_deltas = not keys.is_empty, not deltas.is_empty
    for first in range(0, count, max_records):
        size = min(max_records, count - first)
        value_data, value_lengths = values.take(size)
        key_data, key_lengths = keys.take(size) if has_keys else (b"", [])
        joined = JoinedColumns(
            value_data,
            value_lengths,
            key_data,
            key_lengths,
            deltas.take(size) if has_deltas else [],
            headers_by_record(headers.take(first, first + size)),
        )
        yield BatchSlice(first, joined)


class _Entries:
    """The numbers of one column."""

    def __init__(self, plain: Plain, layout: Layout, number: int) -> None:
        self._plain = plain
        self._number = number
        self._name = _Pb.DESCRIPTOR.fields_by_number[number].name
        self._pieces = deque(layout.columns.get(number, ()))
        self._ready: list[int] = []
        self.is_empty = layout.column_bytes(number) == 0

    def take(self, count: int) -> list[int]:
        """Raises INVALID_BATCH where there are fewer."""
        while len(self._ready) < count:
            if not self._pieces:
                raise invalid_batch(
                    f"{self._name} has fewer entries than there are records; there is one for each"
                )
            self._ready += self._parse(self._next_chunk())
        taken = self._ready[:count]
        del self._ready[:count]
        return taken

    def _next_chunk(self) -> Span:
        """Ends between two entries."""
        start, end = self._pieces.popleft()
        chunk_end = min(start + _CHUNK_BYTES, end)
        while chunk_end < end and self._plain[chunk_end - 1] & 0x80:
            chunk_end += 1
        if chunk_end < end:
            self._pieces.appendleft(Span(chunk_end, end))
        return Span(start, chunk_end)

    def _parse(self, chunk: Span) -> list[int]:
        layout = Layout(Span(0, 0), Span(0, 0), {self._number: [chunk]}, [])
        message = batch_layout.parse_columns(self._plain, layout)
        entries: list[int] = getattr(message, self._name)[:]
        return entries


class _Contents:
    """Keys or values, with their lengths."""

    def __init__(
        self, column: str, plain: Plain, data: Span, layout: Layout, lengths_number: int
    ) -> None:
        self._column = column
        self._plain = plain
        self._position, self._end = data
        self._lengths = _Entries(plain, layout, lengths_number)

    @property
    def is_empty(self) -> bool:
        return self._lengths.is_empty

    def take(self, count: int) -> tuple[bytes, list[int]]:
        lengths = self._lengths.take(count)
        size = sum(length for length in lengths if length > 0)
        data = bytes(self._plain[self._position : min(self._position + size, self._end)])
        check_lengths(self._column, lengths, len(data))
        self._position += size
        return data, lengths


class _Headers:
    """Those of records that follow each other."""

    def __init__(self, plain: Plain, runs: Sequence[Span], record_count: int) -> None:
        self._plain = plain
        self._runs = runs
        self._next = 0
        self._count = record_count
        self._ready: deque[record_batch_pb2.RecordHeader] = deque()

    def take(self, first: int, end: int) -> list[record_batch_pb2.RecordHeader]:
        """Of the records `first` to `end` (exclusive), counted from `first`."""
        taken: list[record_batch_pb2.RecordHeader] = []
        while self._fill() and self._ready[0].record_index < end:
            taken.append(self._ready.popleft())
        check_ascending([item.record_index for item in taken], first, self._count)
        for item in taken:
            item.record_index -= first
        return taken

    def _fill(self) -> bool:
        if not self._ready and self._next < len(self._runs):
            start, end = self._runs[self._next]
            self._next += 1
            message = batch_layout.parse(bytes(self._plain[start:end]), len(self._plain))
            self._ready.extend(message.headers)
        return bool(self._ready)
