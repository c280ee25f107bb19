"""Converts fetched batches to Arrow batches, column by column, without an object for each record.
No I/O.

A batch is due at BATCH_BYTES or BATCH_RECORDS; the last slice of a fetched batch may exceed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.batch_slices import decode_slices
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.model import TopicPartition
from tidelog.record_batch import JoinedColumns

# Large, since Spark has a cost for each batch; small enough for the memory of a task.
BATCH_BYTES = 4 << 20
BATCH_RECORDS = 32_768
# Bytes of a header's Python objects, beside its content, until it is converted to Arrow. Measured.
HEADER_OBJECTS_BYTES = 550
# Spark counts microseconds. Producers may send later times, by a wrong unit for example.
MAX_TIMESTAMP_MS = (2**63 - 1) // 1000


class _Piece(NamedTuple):
    """Records `low` to `high` (exclusive) of a slice of a fetched batch. The slice begins with the
    batch's record `first`."""

    fetched: FetchedBatch
    first: int
    joined: JoinedColumns
    low: int
    high: int


class ArrowBatches:
    """Collects the records of one partition. `schema` is the Arrow form of some of the columns of
    `tidelog.spark.columns`, in any order."""

    def __init__(self, schema: pa.Schema, partition: TopicPartition) -> None:
        self._schema = schema
        self._partition = partition
        self._with_headers = "headers" in schema.names
        self._pieces: list[_Piece] = []
        self._records = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._records >= BATCH_RECORDS or self._bytes >= BATCH_BYTES

    def add(self, fetched: FetchedBatch, end_offset: int) -> Iterator[None]:
        """Adds the batch's records before `end_offset`, slice by slice. After each slice the caller
        checks `is_full`. Raises `TidelogError` (INVALID_BATCH)."""
        low = fetched.skip
        high = min(fetched.header.record_count, end_offset - fetched.header.base_offset)
        if high <= low:
            return
        with fetched.opening():
            yield from self._add_slices(fetched, low, high)

    def _add_slices(self, fetched: FetchedBatch, low: int, high: int) -> Iterator[None]:
        for first, joined in decode_slices(fetched.batch, with_headers=self._with_headers):
            count = len(joined.value_lengths)
            if first >= high:
                return
            if first + count <= low:
                continue
            piece = _Piece(fetched, first, joined, max(low - first, 0), min(high - first, count))
            self._pieces.append(piece)
            self._records += piece.high - piece.low
            self._bytes += len(joined.values) + len(joined.keys) + _header_bytes(joined)
            yield

    def take(self) -> pa.RecordBatch | None:
        """Returns all collected records, or None if there are none."""
        if not self._pieces:
            return None
        pieces, self._pieces = self._pieces, []
        count, self._records, self._bytes = self._records, 0, 0
        arrays = [self._array(field, pieces, count) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, pieces: Sequence[_Piece], count: int) -> pa.Array:
        match field.name:
            case "value":
                parts = [(p.joined.values, p.joined.value_lengths, p.low, p.high) for p in pieces]
                return _binary(parts, field.type)
            case "key":
                parts = [(p.joined.keys, p.joined.key_lengths, p.low, p.high) for p in pieces]
                return _binary(parts, field.type)
            case "topic":
                return _repeated(self._partition.topic.encode(), count, field.type)
            case "partition":
                return pa.array(np.full(count, self._partition.partition, np.int32))
            case "offset":
                return pa.array(np.concatenate([_offsets(p) for p in pieces]))
            case "leader_epoch":
                return pa.array(np.concatenate([_leader_epochs(p) for p in pieces]))
            case "timestamp":
                return _timestamps(np.concatenate([_timestamps_ms(p) for p in pieces]), field.type)
            case "headers":
                return pa.array([h for p in pieces for h in _headers(p)], field.type)
        raise AssertionError(f"column {field.name} is none of tidelog's")


def _header_bytes(joined: JoinedColumns) -> int:
    """Estimates the bytes of the headers until they are converted to Arrow."""
    return sum(
        len(key) + len(value) + HEADER_OBJECTS_BYTES
        for of_record in joined.headers.values()
        for key, value in of_record
    )


def _binary(parts: Sequence[tuple[bytes, list[int], int, int]], kind: pa.DataType) -> pa.Array:
    """Each of `parts`: joined contents, their lengths (empty: all are null), and the first and end
    index of the entries to take."""
    contents: list[bytes] = []
    columns: list[Any] = []
    for data, all_lengths, low, high in parts:
        if not all_lengths:
            columns.append(np.full(high - low, -1, np.int64))
            continue
        lengths = np.array(all_lengths, np.int64)
        if low or high < len(all_lengths):
            sizes = np.maximum(lengths, 0)
            first = int(sizes[:low].sum())
            data = data[first : first + int(sizes[low:high].sum())]
            lengths = lengths[low:high]
        contents.append(data)
        columns.append(lengths)
    lengths = np.concatenate(columns)
    is_present = lengths >= 0
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    validity = None
    if not is_present.all():
        validity = pa.py_buffer(np.packbits(is_present, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(b"".join(contents))]
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def _repeated(content: bytes, count: int, kind: pa.DataType) -> pa.Array:
    ends = np.arange(count + 1, dtype=np.int32) * len(content)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(content * count)]
    return pa.Array.from_buffers(kind, count, buffers)


def _offsets(piece: _Piece) -> Any:
    base = piece.fetched.header.base_offset + piece.first
    return np.arange(base + piece.low, base + piece.high, dtype=np.int64)


def _leader_epochs(piece: _Piece) -> Any:
    return np.full(piece.high - piece.low, piece.fetched.header.leader_epoch, np.int32)


def _timestamps_ms(piece: _Piece) -> Any:
    base_ms = piece.fetched.header.base_timestamp_ms
    if not piece.joined.timestamp_deltas_ms:
        return np.full(piece.high - piece.low, base_ms, np.int64)
    return base_ms + np.array(piece.joined.timestamp_deltas_ms[piece.low : piece.high], np.int64)


def _timestamps(times_ms: Any, kind: pa.DataType) -> pa.Array:
    """Times that Spark cannot represent become null."""
    is_beyond = (times_ms > MAX_TIMESTAMP_MS) | (times_ms < -MAX_TIMESTAMP_MS)
    micros = np.where(is_beyond, 0, times_ms) * 1000
    return pa.array(micros, mask=is_beyond if is_beyond.any() else None).view(kind)


def _headers(piece: _Piece) -> list[list[dict[str, Any]] | None]:
    """None for a record without headers, as in Spark's source for Kafka."""
    found = piece.joined.headers
    return [
        [{"key": key, "value": value} for key, value in found[index]] if index in found else None
        for index in range(piece.low, piece.high)
    ]
