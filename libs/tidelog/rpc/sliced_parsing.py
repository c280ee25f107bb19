"""Parses a large request in slices, between which the event loop runs other tasks.

A broker's full state is one message of tens of thousands of entries. Protobuf parses a message in
one call, but the concatenation of two messages parses as their merge. So the fields of a message
can be parsed in portions. Entries are counted, at any depth, before they become objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tidelog import request_bounds
from tidelog.rpc.list_limits import ListField, MessageLists, check_lists, lists_of
from tidelog.wire_fields import BYTES, MalformedMessageError, count_varints, walk_fields

# A slice with this many fields, or bytes, takes about two milliseconds.
FIELDS_PER_SLICE = 1_000
BYTES_PER_SLICE = 256 << 10
# Parsing and counting an entry with nested lists takes as long as this many fields.
_FIELDS_PER_LISTS = 4
# Parsing copies a portion twice. A larger portion is copied in one slice, and parsed in the next.
COPIED_BYTES = 1 << 20
# A shorter entry is not walked if its size cannot hold more entries than a list's limit: a broker
# gets a full state at every start, with a hundred fields per replica.
_SHORT_BYTES = 1_024


class UnparsedRequest(NamedTuple):
    """A request that was received and is not parsed yet."""

    data: bytes
    descriptor: Descriptor

    async def parse(self) -> Message:
        """Returns the message. Raises INVALID_REQUEST for too many entries of a list or of all
        lists together, nested ones included, or for an entry of too many bytes, and
        `DecodeError`."""
        made = GetMessageClass(self.descriptor)()
        try:
            await _Parser(self.data, made).parse()
        except MalformedMessageError as error:
            raise DecodeError(str(error)) from error
        return made


class _Parser:
    def __init__(self, data: bytes, made: Message) -> None:
        self._data = data
        self._made = made
        self._lists = lists_of(made.DESCRIPTOR)
        # Fields and bytes of the current slice.
        self._fields = self._bytes = 0
        # Entries of all lists together, and how many entries of each top-level list it includes.
        self._total = 0
        self._totalled: Counter[str] = Counter()

    async def parse(self) -> None:
        await self._merge(self._made, self._lists, 0, len(self._data), Counter())
        self._check_total()

    async def _merge(
        self, made: Any, lists: MessageLists, start: int, end: int, counts: Counter[str]
    ) -> None:
        """Merges the message in these bytes. `counts`: entries of its lists so far, by full name: a
        message that is not repeated may come in several parts, which merge."""
        # Start of the bytes that are not merged yet, and end of the previous field.
        begin = position = start
        for number, wire_type, content, content_end in walk_fields(self._data, start, end):
            field = lists.fields.get(number)
            nested = None
            if field is not None:
                self._count(field, wire_type, content, content_end, counts)
                if wire_type == BYTES and _is_walked(field, content_end - content):
                    nested = field.nested
            if field is not None and nested is not None:
                self._bytes += position - begin
                made.MergeFromString(self._data[begin:position])
                await self._merge_nested(made, field, nested, content, content_end, counts)
                begin = content_end
            self._fields += 1 if field is None or field.nested is None else _FIELDS_PER_LISTS
            position = content_end
            if (
                self._fields >= FIELDS_PER_SLICE
                or self._bytes + position - begin >= BYTES_PER_SLICE
            ):
                some = self._data[begin:position]
                if len(some) > COPIED_BYTES:
                    await asyncio.sleep(0)
                made.MergeFromString(some)
                begin = position
                if made is self._made:
                    self._check_total()
                self._fields = self._bytes = 0
                await asyncio.sleep(0)
        made.MergeFromString(self._data[begin:end])
        self._bytes += end - begin

    async def _merge_nested(
        self,
        made: Any,
        field: ListField,
        nested: MessageLists,
        start: int,
        end: int,
        counts: Counter[str],
    ) -> None:
        if field.is_repeated:
            await self._merge(getattr(made, field.name).add(), nested, start, end, Counter())
        else:
            part = getattr(made, field.name)
            part.SetInParent()
            await self._merge(part, nested, start, end, counts)

    def _count(
        self, field: ListField, wire_type: int, start: int, end: int, counts: Counter[str]
    ) -> None:
        """Counts an entry. Raises INVALID_REQUEST."""
        if field.is_repeated:
            is_packed = field.is_number and wire_type == BYTES
            counts[field.full_name] += self._packed(field, start, end) if is_packed else 1
            if counts[field.full_name] > field.max_entries:
                request_bounds.check_entries(field.full_name, counts[field.full_name])
        if end - start > field.max_bytes:
            request_bounds.check_entry_bytes(field.full_name, end - start)

    def _packed(self, field: ListField, start: int, end: int) -> int:
        if field.fixed_bytes:
            return (end - start) // field.fixed_bytes
        return count_varints(self._data, start, end)

    def _check_total(self) -> None:
        """Raises INVALID_REQUEST for too many entries of all lists. Short entries are counted here
        after they became objects in a slice. No entry is incomplete here."""
        singles = 0
        for field in self._lists.fields.values():
            nested = field.nested
            if not field.is_repeated:
                if nested is not None and self._made.HasField(field.name):
                    singles += check_lists(getattr(self._made, field.name), nested)
                continue
            entries, before = getattr(self._made, field.name), self._totalled[field.name]
            self._total += len(entries) - before
            self._totalled[field.name] = len(entries)
            if nested is not None:
                self._total += sum(check_lists(entry, nested) for entry in entries[before:])
        name = self._made.DESCRIPTOR.full_name
        request_bounds.check_total_entries(name, self._total + singles)


def _is_walked(field: ListField, size_bytes: int) -> bool:
    """Returns whether to walk the fields of a nested message. One that is not repeated is always
    walked, because several parts of it may have too many entries together."""
    if field.nested is None:
        return False
    return not field.is_repeated or size_bytes > min(_SHORT_BYTES, field.nested.safe_bytes)
