"""Parses a large request in slices, between which the event loop runs other tasks.

A broker's full state is one message of tens of thousands of entries. Protobuf parses a message in
one call, but the concatenation of two messages parses as their merge: the top-level fields can be
parsed some at a time. Each is counted before it becomes an object."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tidelog import request_bounds
from tidelog.wire_fields import MalformedMessageError, walk_fields

# A slice of so many fields, or of so many bytes, takes about two milliseconds.
FIELDS_PER_SLICE = 1_000
BYTES_PER_SLICE = 256 << 10


class _ListBound(NamedTuple):
    """`field`: its full name."""

    field: str
    max_entries: int


class UnparsedRequest(NamedTuple):
    """A request whose bytes have come, and which has yet to be parsed."""

    data: bytes
    descriptor: Descriptor

    async def parse(self) -> Message:
        """Raises INVALID_REQUEST for too many entries of a list, or for one of too many bytes, and
        `DecodeError`. What entries nest is not counted: a broker's full state is served at its
        every start, and has a hundred fields a replica."""
        made = GetMessageClass(self.descriptor)()
        bounds = _bounds_of(self.descriptor)
        counts: Counter[int] = Counter()
        begin = fields = 0
        try:
            for number, _, start, end in walk_fields(self.data):
                bound = bounds.get(number)
                if bound is not None:
                    counts[number] += 1
                    if counts[number] > bound.max_entries:
                        request_bounds.check_entries(bound.field, counts[number])
                    if end - start > request_bounds.MAX_INTERNAL_ENTRY_BYTES:
                        request_bounds.check_entry_bytes(bound.field, end - start)
                fields += 1
                if fields == FIELDS_PER_SLICE or end - begin >= BYTES_PER_SLICE:
                    made.MergeFromString(self.data[begin:end])
                    begin, fields = end, 0
                    await asyncio.sleep(0)
        except MalformedMessageError as error:
            raise DecodeError(str(error)) from error
        made.MergeFromString(self.data[begin:])
        return made


@lru_cache(maxsize=64)
def _bounds_of(descriptor: Descriptor) -> dict[int, _ListBound]:
    return {
        number: _ListBound(field.full_name, request_bounds.entries_limit(field.full_name))
        for number, field in descriptor.fields_by_number.items()
    }
