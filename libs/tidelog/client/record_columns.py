"""Records as `send` and `send_many` get them: checks them, splits them by key, and cuts them into
batches. No I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple, cast

from tidelog.client.arguments import integer, text, topic_name, wrong_type
from tidelog.client.open_batches import MAX_BATCH_HEADERS, MAX_BATCH_RECORDS, headers_bytes
from tidelog.client.record_serializer import BYTES_OR_NONE, RecordSerializer, check_content
from tidelog.errors import ArgumentTypeError, InvalidArgumentError
from tidelog.record_batch import Headers
from tidelog.record_limits import check_header_count, check_header_names, check_key_size

# Records that are checked or split before other tasks run.
SLICE_RECORDS = 4_096
_MAX_TIMESTAMP_MS = (1 << 62) - 1
# Types that have a length and items, and are no column of records.
_NO_COLUMNS = (bytes, bytearray, memoryview, str, Mapping)


class RecordColumns(NamedTuple):
    """Columns of records. One timestamp may apply to all. `headers`: None: no record has any."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    timestamps_ms: Sequence[int] | int
    headers: Sequence[Headers] | None = None

    def check_shape(self) -> None:
        """Raises `InvalidArgumentError` if the columns do not fit together."""
        _check_sequence("values", self.values, "bytes")
        if self.keys is not None:
            _check_sequence("keys", self.keys, "bytes")
            _check_same_length("keys", self.keys, self.values)
        if not isinstance(self.timestamps_ms, int):
            _check_sequence("timestamps_ms", self.timestamps_ms, "integers")
            _check_same_length("timestamps", self.timestamps_ms, self.values)

    def check_in_slices(
        self, serializer: RecordSerializer | None = None, topic: str = ""
    ) -> Iterator[None]:
        """Raises `InvalidArgumentError` for records that cannot be sent, `TidelogError`
        (INVALID_BATCH) for a key or headers beyond their limits. Yields where other tasks may run.

        With a `serializer`, keys and values are replaced before they are checked: the columns must
        be `copied` and replaceable. Headers are replaced by copies. Raises `SerializationError`."""
        if isinstance(self.timestamps_ms, int):
            check_timestamps((self.timestamps_ms,))
        for first in range(0, len(self.values), SLICE_RECORDS):
            if serializer is not None and serializer.sendable_type is None:
                self._serialize_slice(serializer, topic, first)
            values, keys, timestamps_ms, headers = _slice(self, first, first + SLICE_RECORDS)
            _check_bytes("values", values, first)
            if keys is not None:
                _check_bytes("keys", keys, first)
                check_key_size(max(_lengths(keys), default=0))
            if not isinstance(timestamps_ms, int):
                check_timestamps(timestamps_ms)
            if headers is not None:
                _replace_slice(self.headers, first, _checked_headers(headers))
            yield

    def _serialize_slice(self, serializer: RecordSerializer, topic: str, first: int) -> None:
        values, keys, _, _ = _slice(self, first, first + SLICE_RECORDS)
        _replace_slice(self.values, first, serializer.column("value", topic, values, first))
        if keys is not None:
            _replace_slice(self.keys, first, serializer.column("key", topic, keys, first))

    def copied(self, *, replaceable: bool = False) -> RecordColumns:
        """Returns lists or tuples that the caller cannot change while the records wait for room; if
        keys and values are `replaceable`, lists."""
        values, keys, timestamps_ms, headers = self
        return RecordColumns(
            list(values) if replaceable else _copied(values),
            None if keys is None else list(keys) if replaceable else _copied(keys),
            timestamps_ms if isinstance(timestamps_ms, int) else _copied(timestamps_ms),
            None if headers is None else [_copied_entry(entry) for entry in headers],
        )

    def sizes(self) -> list[int]:
        """Returns the bytes of each record's key, value and headers."""
        sizes = _lengths(self.values)
        if self.keys is not None:
            sizes = [size + key for size, key in zip(sizes, _lengths(self.keys), strict=True)]
        if self.headers is not None:
            sizes = [
                size + headers_bytes(headers)
                for size, headers in zip(sizes, self.headers, strict=True)
            ]
        return sizes

    def headers_by_index(self) -> dict[int, Headers] | None:
        """Returns the headers as a batch holds them: by the position of their record."""
        if self.headers is None:
            return None
        return {index: headers for index, headers in enumerate(self.headers) if headers}


def header_column(
    headers: Sequence[Headers] | Headers, values: Sequence[object]
) -> Sequence[Headers] | None:
    """Returns one entry for each value; None: no record has headers. Headers of one record apply to
    all records. Raises `InvalidArgumentError` for other sequences."""
    _check_sequence("headers", headers, "pairs of str and bytes, or of one for each record")
    if not len(headers):
        return None
    if _is_pair(headers[0]):
        return [checked_headers(cast("Headers", headers))] * len(values)
    column = cast("Sequence[Headers]", headers)
    _check_same_length("headers", column, values)
    return column


def _replace_slice(column: Any, first: int, items: Sequence[Any]) -> None:
    column[first : first + len(items)] = items


def _copied_entry(headers: Headers) -> Headers:
    return tuple(headers) if isinstance(headers, list) else headers


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


def _checked_headers(column: Sequence[Headers]) -> list[Headers]:
    checked: list[Headers] = []
    before: Headers = ()
    for headers in column:
        # Often all records have the same ones.
        if checked and headers is before:
            checked.append(checked[-1])
        else:
            checked.append(checked_headers(headers))
        before = headers
    return checked


def check_place(topic: str, partition: int | None) -> None:
    """Checks the types of a record's topic and partition. Raises `TidelogError`."""
    if type(topic) is not str:
        topic_name("topic", topic)
    if partition is not None and type(partition) is not int:
        integer("partition", partition)


def _check_bytes(name: str, column: Sequence[object], first: int) -> None:
    """Raises `ArgumentTypeError` for the first entry that is neither bytes nor None. `first`:
    position of the column in that of the caller."""
    if not BYTES_OR_NONE.issuperset(map(type, column)):
        for index, content in enumerate(column, first):
            check_content(f"{name}[{index}]", content)


def check_timestamps(timestamps_ms: Sequence[int]) -> None:
    """Raises `ArgumentTypeError` if one is no int, `InvalidArgumentError` if no batch can hold
    one."""
    if not {int}.issuperset(map(type, timestamps_ms)):
        raise ArgumentTypeError("a timestamp must be an int: milliseconds since 1970 (UTC)")
    if timestamps_ms and not 0 <= min(timestamps_ms) <= max(timestamps_ms) <= _MAX_TIMESTAMP_MS:
        raise InvalidArgumentError(
            f"timestamps lie between {min(timestamps_ms)} and {max(timestamps_ms)}; they are "
            f"milliseconds since 1970 (UTC), from 0 to {_MAX_TIMESTAMP_MS}"
        )


def checked_headers(headers: Headers) -> Headers:
    """Raises `InvalidArgumentError` for headers that are not pairs of str and bytes,
    `TidelogError` (INVALID_BATCH) for more or longer ones than a record may have."""
    _check_sequence("headers", headers, "pairs of str and bytes")
    check_header_count(len(headers))
    for header in headers:
        if not (
            isinstance(header, tuple)
            and len(header) == 2
            and isinstance(header[0], str)
            and isinstance(header[1], bytes)
        ):
            raise wrong_type("a header", header, "a pair of str and bytes")
        # A name that is not valid UTF-8 is rejected here, not when its batch is sealed.
        text("the name of a header", header[0])
    check_header_names([len(header[0].encode()) for header in headers])
    # The caller may change its list before the batch is sealed.
    return tuple(headers)


def split_by_key(
    columns: RecordColumns, partition_of: Callable[[bytes], int]
) -> Iterator[tuple[int | None, RecordColumns] | None]:
    """Yields each partition's columns, with records in order; partition None: records without a
    key. Yields None in place of a pair where other tasks may run."""
    if columns.keys is None:
        yield None, columns
        return
    indexes: dict[int | None, list[int]] = {}
    for index, key in enumerate(columns.keys):
        indexes.setdefault(None if key is None else partition_of(key), []).append(index)
        if index % SLICE_RECORDS == SLICE_RECORDS - 1:
            yield None
    if len(indexes) == 1:
        yield next(iter(indexes)), columns
        return
    for partition, chosen in indexes.items():
        yield partition, _pick(columns, chosen)


def cut(
    columns: RecordColumns, sizes: Sequence[int], batch_bytes: int
) -> Iterator[tuple[RecordColumns, int]]:
    """Yields pieces of at most `batch_bytes`, or of one larger record, with their size in bytes.
    `sizes`: of the records."""
    ends = list(accumulate(sizes))
    header_ends = [] if columns.headers is None else list(accumulate(map(len, columns.headers)))
    first = taken_bytes = 0
    while first < len(ends):
        last = bisect_right(ends, taken_bytes + batch_bytes, lo=first)
        if header_ends:
            taken_headers = header_ends[first - 1] if first else 0
            last = min(last, bisect_right(header_ends, taken_headers + MAX_BATCH_HEADERS, lo=first))
        last = min(max(last, first + 1), first + MAX_BATCH_RECORDS)
        piece_bytes = ends[last - 1] - taken_bytes
        yield _slice(columns, first, last), piece_bytes
        taken_bytes += piece_bytes
        first = last


def _slice(columns: RecordColumns, first: int, last: int) -> RecordColumns:
    values, keys, timestamps_ms, headers = columns
    return RecordColumns(
        values[first:last],
        None if keys is None else keys[first:last],
        timestamps_ms if isinstance(timestamps_ms, int) else timestamps_ms[first:last],
        None if headers is None else headers[first:last],
    )


def _pick(columns: RecordColumns, indexes: list[int]) -> RecordColumns:
    def picked(column: Sequence[Any]) -> Sequence[Any]:
        # itemgetter loops in C, but returns no sequence for a single index.
        return itemgetter(*indexes)(column) if len(indexes) > 1 else [column[indexes[0]]]

    values, keys, timestamps_ms, headers = columns
    return RecordColumns(
        picked(values),
        None if keys is None else picked(keys),
        timestamps_ms if isinstance(timestamps_ms, int) else picked(timestamps_ms),
        None if headers is None else picked(headers),
    )


def _lengths(column: Sequence[bytes | None]) -> list[int]:
    try:
        return list(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return [0 if item is None else len(item) for item in column]


def _copied(column: Sequence[Any]) -> Sequence[Any]:
    return column if type(column) is tuple else list(column)


def _check_sequence(name: str, column: object, of: str) -> None:
    is_sequence = hasattr(column, "__len__") and hasattr(column, "__getitem__")
    if not is_sequence or isinstance(column, _NO_COLUMNS):
        raise wrong_type(name, column, f"a sequence of {of}")


def _check_same_length(name: str, column: Sequence[object], values: Sequence[object]) -> None:
    if len(column) != len(values):
        raise InvalidArgumentError(
            f"there are {len(column)} {name} for {len(values)} values; give one for each"
        )
