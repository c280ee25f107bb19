"""Finds the columns of a RecordBatch in its bytes. Pure functions.

The search takes a step for each field and none for a record. It copies nothing and makes no
object of a record. Lengths, times and headers are parsed afterwards, within their limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tidelog.errors import TidelogError
from tidelog.memory_shortage import is_memory_shortage
from tidelog.record_limits import MAX_READ_HEADERS, invalid_batch
from tidelog.v1 import record_batch_pb2
from tidelog.wire_fields import (
    BYTES,
    VARINT,
    MalformedMessageError,
    Plain,
    WireField,
    encode_varint,
    skip_fields,
    walk_fields,
)

# Proto3 encoders pack the entries of a column into a few fields. Unpacked entries are accepted up
# to this number of fields.
MAX_COLUMN_FIELDS = 10_000
# Headers of a run. A run is parsed in one call.
RUN_HEADERS = 1_024
# The fields of a header longer than this are counted before it is parsed.
_WALKED_HEADER_BYTES = 1_024
_MAX_HEADER_FIELDS = 16
# The longest varint. An encoder may use that many bytes for a small number, too.
_MAX_ENTRY_BYTES = 10

_Pb = record_batch_pb2.RecordBatch
_KEYS, _VALUES = _Pb.KEYS_FIELD_NUMBER, _Pb.VALUES_FIELD_NUMBER
TIMESTAMP_DELTAS = _Pb.TIMESTAMP_DELTAS_MS_FIELD_NUMBER
_HEADER_TAG = _Pb.HEADERS_FIELD_NUMBER << 3 | BYTES
_COLUMNS = {
    _Pb.KEY_LENGTHS_FIELD_NUMBER: "key_lengths",
    _Pb.VALUE_LENGTHS_FIELD_NUMBER: "value_lengths",
    TIMESTAMP_DELTAS: "timestamp_deltas_ms",
}


class Span(NamedTuple):
    """Bytes `start` to `end` (exclusive) of the message."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Layout(NamedTuple):
    """Where the columns of a message lie.

    - `columns`: spans of the packed entries by field number, in the order of the message.
    - `headers`: runs of header fields with their tags, each of at most RUN_HEADERS headers.
    - `header_count`: headers of all runs.
    """

    keys: Span
    values: Span
    columns: dict[int, list[Span]]
    headers: list[Span]
    header_count: int = 0

    def column_bytes(self, number: int) -> int:
        return sum(piece.size for piece in self.columns.get(number, ()))


def too_many_to_append(max_headers: int) -> TidelogError:
    return invalid_batch(
        f"the batch has more than {max_headers} headers, a fixed limit: send several batches"
    )


def too_many_to_read(max_headers: int) -> TidelogError:
    hint = ""
    if max_headers < MAX_READ_HEADERS:
        hint = f": record_slices opens one of up to {MAX_READ_HEADERS}"
    return invalid_batch(f"the batch has more than {max_headers} headers{hint}")


def find_layout(
    plain: Plain,
    max_headers: int | None = None,
    too_many: Callable[[int], Exception] = too_many_to_append,
) -> Layout:
    """Returns the layout of a decompressed message.

    Raises `TidelogError` (INVALID_BATCH) if the bytes are not such a message, and
    `too_many(max_headers)` as soon as more than `max_headers` headers are found.
    """
    layout = Layout(Span(0, 0), Span(0, 0), {}, [])
    headers = others = position = 0
    try:
        while position < len(plain):
            run = skip_fields(plain, position, _HEADER_TAG, RUN_HEADERS, _check_header)
            if run.fields:
                headers += run.fields
                layout.headers.append(Span(position, run.end))
                position = run.end
                if max_headers is not None and headers > max_headers:
                    raise too_many(max_headers)
                continue
            field = next(walk_fields(plain, position))
            position = field.end
            others += 1
            if others > MAX_COLUMN_FIELDS:
                raise invalid_batch(
                    f"the batch has more than {MAX_COLUMN_FIELDS} fields beside its headers; pack "
                    "repeated fields, as proto3 does"
                )
            layout = _with_field(layout, field)
    except MalformedMessageError as error:
        raise not_a_batch(len(plain), str(error)) from None
    return layout._replace(header_count=headers)


def _with_field(layout: Layout, field: WireField) -> Layout:
    number, wire_type, start, end = field
    if wire_type == BYTES and number == _KEYS:
        return layout._replace(keys=Span(start, end))
    if wire_type == BYTES and number == _VALUES:
        return layout._replace(values=Span(start, end))
    if wire_type in (BYTES, VARINT) and number in _COLUMNS:
        layout.columns.setdefault(number, []).append(Span(start, end))
    return layout


def _check_header(plain: Plain, start: int, end: int) -> None:
    """Raises `TidelogError` (INVALID_BATCH) if a long header has too many fields.

    Unknown fields cost time to parse and have no content that is used.
    """
    if end - start <= _WALKED_HEADER_BYTES:
        return
    for count, _ in enumerate(walk_fields(plain, start, end), 1):
        if count > _MAX_HEADER_FIELDS:
            raise invalid_batch(
                f"a header holds more than {_MAX_HEADER_FIELDS} fields; it has a record_index, a "
                "key and a value"
            )


def check_column_sizes(layout: Layout, record_count: int) -> None:
    """Raises `TidelogError` (INVALID_BATCH) if a column has more bytes than one entry for each
    record can take."""
    for number, name in _COLUMNS.items():
        size = layout.column_bytes(number)
        if size > record_count * _MAX_ENTRY_BYTES:
            raise invalid_batch(
                f"{name} takes {size} bytes but record_count is {record_count}; there is one entry "
                "for each record"
            )


def field_spans(plain: Plain, number: int) -> list[Span]:
    """Returns the spans, with tags, of all fields of this number. `plain` must have a layout
    (`find_layout`)."""
    spans: list[Span] = []
    position = 0
    for field in walk_fields(plain):
        if field.number == number:
            spans.append(Span(position, field.end))
        position = field.end
    return spans


def parse_columns(
    plain: Plain, layout: Layout, *, with_headers: bool = True
) -> record_batch_pb2.RecordBatch:
    """Parses lengths, times and headers, and skips keys and values. Raises `TidelogError`
    (INVALID_BATCH)."""
    parts: list[Plain] = []
    for number, pieces in layout.columns.items():
        size = sum(piece.size for piece in pieces)
        parts += [bytes([number << 3 | BYTES]), encode_varint(size)]
        parts += [plain[start:end] for start, end in pieces]
    if with_headers:
        parts += [plain[start:end] for start, end in layout.headers]
    return parse(b"".join(parts), len(plain))


def parse(data: bytes, size_bytes: int) -> record_batch_pb2.RecordBatch:
    """Parses `data`, a part of a message of `size_bytes`. Raises `TidelogError`
    (INVALID_BATCH), and `MemoryError`."""
    try:
        return record_batch_pb2.RecordBatch.FromString(data)
    except DecodeError as error:
        if is_memory_shortage(error):
            raise MemoryError(str(error)) from None
        raise not_a_batch(size_bytes, str(error)) from None


def not_a_batch(size_bytes: int, why: str) -> TidelogError:
    return invalid_batch(
        f"the {size_bytes} bytes are no RecordBatch message: {why}; serialize one as "
        "record_batch.proto says and name the codec that was used"
    )
