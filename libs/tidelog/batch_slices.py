"""Decodes a batch of very many records slice by slice. No I/O.

Only one slice's objects are held beside the decompressed message, whose size
`max_decompressed_bytes` bounds. Logs may hold batches that were written before `record_limits`
applied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from tidelog import batch_layout
from tidelog.batch_layout import Layout, Span
from tidelog.column_checks import check_ascending, check_lengths, keys_without_lengths
from tidelog.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Plain, stated_size
from tidelog.copies import copied
from tidelog.errors import TidelogError
from tidelog.model import Batch, BatchHeader, Codec
from tidelog.record_batch import (
    JoinedColumns,
    decode_plain,
    decompressed,
)
from tidelog.record_limits import (
    MAX_READ_HEADERS,
    MAX_READ_HEADERS_PER_RECORD,
    RECORD_LIMITS,
    invalid_batch,
)
from tidelog.v1 import record_batch_pb2

# Records of a slice. Python makes their objects in about ten milliseconds.
SLICE_RECORDS = 16_384
# Bytes of keys and values of a slice; a single record may have more. They are copied in about five
# milliseconds.
SLICE_BYTES = 4 << 20
# A batch with more than this is decoded in a thread, not on the event loop.
CHEAP_RECORDS = 4_096
CHEAP_BYTES = 256 << 10
# Headers that are decoded on an event loop. Each is several objects; this many take a few
# milliseconds.
CHEAP_HEADERS = 4_096
# A header costs a few times as much as a record, so a slice has this many times fewer headers.
_RECORDS_PER_HEADER = 2
# A message of at most this size has few headers, which need not be counted.
_FEW_HEADERS_BYTES = 8 << 10
# Assumed ratio of decompressed to compressed bytes where the frame does not state its size.
UNSTATED_EXPANSION = 4
# Bytes of packed entries that are parsed in one call.
_CHUNK_BYTES = 16 << 10
# The tag, the size and the record index of a header. Headers of the first record omit the index.
_LEAST_HEADER_BYTES = 4

_Pb = record_batch_pb2.RecordBatch


class CostlyBatchError(Exception):
    """The batch has more headers than may be decoded on an event loop; decode it in a thread."""


class BatchSlice(NamedTuple):
    """Decoded records of a batch. `first` is the position of the first one in the batch."""

    first: int
    joined: JoinedColumns


def is_costly_to_open(batch: Batch) -> bool:
    """Whether decoding the batch may block an event loop for more than a few milliseconds.

    Headers are not considered: their number is known only after decompression
    (`CostlyBatchError`).
    """
    header = batch.header
    if header.record_count > CHEAP_RECORDS or len(batch.records) > CHEAP_BYTES:
        return True
    if header.codec == Codec.NONE:
        return False
    # A frame that understates its size fails to decompress at that size.
    stated = stated_size(header.codec, batch.records)
    return stated is None or stated > CHEAP_BYTES


def decoded_size(batch: Batch) -> int:
    """Returns the bytes of the decompressed batch as its frame states them.

    The statement may be wrong, but no reader holds more of one batch than
    DEFAULT_MAX_DECOMPRESSED_BYTES.
    """
    size = len(batch.records)
    stated = stated_size(batch.header.codec, batch.records)
    if stated is None:
        stated = size * UNSTATED_EXPANSION
    return max(min(stated, DEFAULT_MAX_DECOMPRESSED_BYTES), size)


def decode_slices(
    batch: Batch,
    *,
    max_records: int = SLICE_RECORDS,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    with_headers: bool = True,
    cheap_only: bool = False,
) -> Iterator[BatchSlice]:
    """Returns the batch's records in order, in slices of at most `max_records`.

    Slices of records with many headers or large values are smaller. Header positions count from the
    slice's first record. Raises `TidelogError` (INVALID_BATCH), possibly after some slices. With
    `cheap_only` the call raises `CostlyBatchError` if there are more than CHEAP_HEADERS headers.
    """
    plain = decompressed(batch, max_decompressed_bytes)
    layout = None
    if with_headers and len(plain) > _FEW_HEADERS_BYTES:
        if cheap_only:
            layout = batch_layout.find_layout(plain, CHEAP_HEADERS, CostlyBatchError)
        else:
            layout = _layout_to_read(plain)
        if layout.header_count <= RECORD_LIMITS.max_batch_headers:
            layout = None
    if batch.header.record_count <= max_records and layout is None:
        joined = decode_plain(plain, batch.header, with_headers=with_headers)
        return iter((BatchSlice(0, joined),))
    if layout is None:
        layout = _layout_to_read(plain) if with_headers else batch_layout.find_layout(plain)
    return _slices(plain, layout, batch.header, max_records, with_headers)


def possible_headers(batch: Batch, limit: int) -> int:
    """Returns an upper bound of the batch's headers without decompressing it.

    It is half of their number in one case: all headers are empty and belong to the first record.
    Headers of a large uncompressed batch are counted, up to `limit + 1`.
    """
    size = decoded_size(batch)
    if batch.header.codec != Codec.NONE or size <= _FEW_HEADERS_BYTES:
        return size // _LEAST_HEADER_BYTES
    try:
        return batch_layout.find_layout(batch.records, limit, CostlyBatchError).header_count
    except CostlyBatchError:
        return limit + 1
    except TidelogError:
        # Bytes that are no message are rejected before their headers are read.
        return 0


def _layout_to_read(plain: Plain) -> Layout:
    return batch_layout.find_layout(plain, MAX_READ_HEADERS, batch_layout.too_many_to_read)


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
    first = 0
    while first < count:
        end = min(first + max_records, count)
        end = first + values.fitting(end - first)
        if has_keys:
            end = first + keys.fitting(end - first)
        of_slice = headers.take(first, end, max(max_records // _RECORDS_PER_HEADER, 1))
        size = of_slice.end - first
        value_data, value_lengths = values.take(size)
        key_data, key_lengths = keys.take(size) if has_keys else (b"", [])
        joined = JoinedColumns(
            value_data,
            value_lengths,
            key_data,
            key_lengths,
            deltas.take(size) if has_deltas else [],
            of_slice.headers,
        )
        yield BatchSlice(first, joined)
        first += size


class _Entries:
    """The numbers of one column, parsed chunk by chunk."""

    def __init__(self, plain: Plain, layout: Layout, number: int) -> None:
        self._plain = plain
        self._number = number
        self._name = _Pb.DESCRIPTOR.fields_by_number[number].name
        self._pieces = deque(layout.columns.get(number, ()))
        self._ready: list[int] = []
        self.is_empty = layout.column_bytes(number) == 0

    def take(self, count: int) -> list[int]:
        """Returns the next `count` entries. Raises INVALID_BATCH if there are fewer."""
        taken = self.peek(count)
        del self._ready[:count]
        return taken

    def peek(self, count: int) -> list[int]:
        """Returns the same entries as `take`, which remain the next ones."""
        while len(self._ready) < count:
            if not self._pieces:
                raise invalid_batch(
                    f"{self._name} has fewer entries than there are records; there is one for each"
                )
            self._ready += self._parse(self._next_chunk())
        return self._ready[:count]

    def _next_chunk(self) -> Span:
        """Returns the next span to parse, which ends between two entries."""
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

    def fitting(self, count: int) -> int:
        """Returns how many of the next `count` records fit into SLICE_BYTES, at least one."""
        lengths = self._lengths.peek(count)
        # A length of -1 means null, so this sum is too low by `count` at most.
        if sum(lengths) + count <= SLICE_BYTES:
            return count
        ends = list(accumulate(max(length, 0) for length in lengths))
        return max(bisect_right(ends, SLICE_BYTES), 1)

    def take(self, count: int) -> tuple[bytes, list[int]]:
        lengths = self._lengths.take(count)
        size = sum(length for length in lengths if length > 0)
        data = copied(self._plain, self._position, min(self._position + size, self._end))
        check_lengths(self._column, lengths, len(data))
        self._position += size
        return data, lengths


class _Headers:
    """The headers of consecutive records, parsed run by run."""

    def __init__(self, plain: Plain, runs: Sequence[Span], record_count: int) -> None:
        self._plain = plain
        self._runs = deque(runs)
        self._count = record_count
        # Parsed headers that are not taken yet, and the record index of each.
        self._ready: list[record_batch_pb2.RecordHeader] = []
        self._indexes: list[int] = []

    def take(self, first: int, end: int, max_headers: int) -> _TakenHeaders:
        """Returns the headers of the records from `first` to `end` (excluded).

        Ends at an earlier record if the records would have more than `max_headers` headers
        together. The first record's headers are always complete. Raises INVALID_BATCH.
        """
        while len(self._ready) <= max_headers and self._parse_run():
            pass
        taken = bisect_left(self._indexes, end)
        if taken > max_headers:
            end = max(self._indexes[max_headers], first + 1)
            taken = self._end_of(end)
        indexes, items = self._indexes[:taken], self._ready[:taken]
        del self._indexes[:taken], self._ready[:taken]
        check_ascending(indexes, first, self._count)
        found: dict[int, list[tuple[str, bytes]]] = {}
        for index, item in zip(indexes, items, strict=True):
            found.setdefault(index - first, []).append((item.key, item.value))
        return _TakenHeaders({index: tuple(of_one) for index, of_one in found.items()}, end)

    def _end_of(self, end: int) -> int:
        """Returns how many headers belong to records before `end`. Raises INVALID_BATCH if they
        exceed MAX_READ_HEADERS_PER_RECORD."""
        while (taken := bisect_left(self._indexes, end)) == len(self._indexes):
            if taken > MAX_READ_HEADERS_PER_RECORD or not self._parse_run():
                break
        if taken > MAX_READ_HEADERS_PER_RECORD:
            raise invalid_batch(
                f"record {end - 1} of the batch has more than {MAX_READ_HEADERS_PER_RECORD} "
                "headers, which no reader opens"
            )
        return taken

    def _parse_run(self) -> bool:
        """Returns False if no run is left."""
        if not self._runs:
            return False
        start, end = self._runs.popleft()
        message = batch_layout.parse(bytes(self._plain[start:end]), len(self._plain))
        self._ready += message.headers
        self._indexes += [item.record_index for item in message.headers]
        return True


class _TakenHeaders(NamedTuple):
    """Headers of the records before `end`, by position relative to the slice's first record."""

    headers: dict[int, tuple[tuple[str, bytes], ...]]
    end: int
