"""Walks the fields of a serialized protobuf message without making objects, so that the cost of
parsing it is known beforehand. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

Plain = bytes | bytearray | memoryview

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class MalformedMessageError(ValueError):
    """The bytes are no protobuf message, or contain groups, which proto3 does not have."""


class WireField(NamedTuple):
    """The place of one field. `start` and `end` bound the content: of BYTES without its length, of
    a VARINT the number itself."""

    number: int
    wire_type: int
    start: int
    end: int


def walk_fields(data: Plain, start: int = 0, end: int | None = None) -> Iterator[WireField]:
    """Yields the top-level fields in the order of the bytes. Raises `MalformedMessageError`."""
    position = start
    limit = len(data) if end is None else end
    while position < limit:
        tag = data[position]
        position += 1
        if tag > 0x7F:
            tag, position = _read_varint(data, position - 1, limit)
        wire_type = tag & 7
        if wire_type == BYTES:
            if position >= limit:
                raise MalformedMessageError("it is cut short")
            size = data[position]
            position += 1
            if size > 0x7F:
                size, position = _read_varint(data, position - 1, limit)
            content, position = position, position + size
        elif wire_type == VARINT:
            content = position
            _, position = _read_varint(data, position, limit)
        elif wire_type == FIXED32:
            content, position = position, position + 4
        elif wire_type == FIXED64:
            content, position = position, position + 8
        else:
            raise MalformedMessageError(f"wire type {wire_type} is not of proto3")
        if position > limit:
            raise MalformedMessageError("it is cut short")
        yield WireField(tag >> 3, wire_type, content, position)


class FieldRun(NamedTuple):
    """Consecutive fields of one tag: their number, and where they end."""

    fields: int
    end: int


def skip_fields(
    data: Plain,
    position: int,
    tag: int,
    max_count: int,
    check: Callable[[Plain, int, int], None],
) -> FieldRun:
    """Returns the run of BYTES fields with this one-byte tag that begins at `position`.

    There may be a million, so the loop is short. `check` receives the data and the bounds of each
    content that is longer than 127 bytes. Raises `MalformedMessageError`.
    """
    limit = len(data)
    count = 0
    while count < max_count and position < limit and data[position] == tag:
        if position + 1 >= limit:
            raise MalformedMessageError("it is cut short")
        size = data[position + 1]
        start = position + 2
        if size > 0x7F:
            size, start = _read_varint(data, position + 1, limit)
            check(data, start, start + size)
        position = start + size
        if position > limit:
            raise MalformedMessageError("it is cut short")
        count += 1
    return FieldRun(count, position)


_CONTINUED = bytes(range(0x80, 0x100))


def count_varints(data: bytes, start: int, end: int) -> int:
    """Returns how many varints of a packed field end in these bytes.

    >>> count_varints(b"\\x01\\x96\\x01\\x02", 0, 4)
    3
    """
    return len(data[start:end].translate(None, _CONTINUED))


def _read_varint(data: Plain, position: int, limit: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(position, min(position + _MAX_VARINT_BYTES, limit)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value, index + 1
        shift += 7
    raise MalformedMessageError("a varint has no end")


def encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
