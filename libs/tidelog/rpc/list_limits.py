"""The lists of a message, at any depth, and their maximum numbers of entries. They are derived from
the descriptors: the defaults of `request_bounds` apply to a new field."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tidelog import request_bounds

_FIXED_BYTES = {
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_DOUBLE: 8,
}


class ListField(NamedTuple):
    """A repeated field, a map, or a message field that contains some.

    - `max_bytes`: of one entry.
    - `fixed_bytes`: size of a packed number; 0: it is a varint.
    - `nested`: lists of each entry; None: it contains no lists.
    """

    name: str
    full_name: str
    is_repeated: bool
    is_number: bool
    fixed_bytes: int
    max_entries: int
    max_bytes: int
    nested: MessageLists | None


class MessageLists(NamedTuple):
    """Lists by field number. A message of `safe_bytes` at most has no list with too many
    entries."""

    fields: dict[int, ListField]
    safe_bytes: int


@lru_cache(maxsize=256)
def lists_of(descriptor: Descriptor) -> MessageLists:
    """Returns the lists of a message type. No request type contains itself."""
    found = {}
    safe = sys.maxsize
    for field in descriptor.fields:
        known = _list_field(field)
        if known is None:
            continue
        found[field.number] = known
        if known.is_repeated:
            # An entry has at least a tag and a length; a packed number has neither.
            safe = min(safe, known.max_entries * (1 if known.is_number else 2))
        if known.nested is not None:
            safe = min(safe, known.nested.safe_bytes)
    return MessageLists(found, safe)


def _list_field(field: FieldDescriptor) -> ListField | None:
    nested = None
    of_message = field.message_type
    if of_message is not None and not of_message.GetOptions().map_entry:
        nested = lists_of(of_message)
        if not nested.fields:
            nested = None
    if not field.is_repeated and nested is None:
        return None
    is_text = field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
    return ListField(
        field.name,
        field.full_name,
        field.is_repeated,
        of_message is None and not is_text,
        _FIXED_BYTES.get(field.type, 0),
        request_bounds.entries_limit(field.full_name),
        request_bounds.entry_bytes_limit(field.full_name),
        nested,
    )


def check_lists(message: Any, lists: MessageLists) -> int:
    """Returns the number of entries of all lists. Raises INVALID_REQUEST if one has too many."""
    total = 0
    for field in lists.fields.values():
        if not field.is_repeated:
            if message.HasField(field.name) and field.nested is not None:
                total += check_lists(getattr(message, field.name), field.nested)
            continue
        entries = getattr(message, field.name)
        count = len(entries)
        if count > field.max_entries:
            request_bounds.check_entries(field.full_name, count)
        total += count
        if count and field.nested is not None:
            for entry in entries:
                total += check_lists(entry, field.nested)
    return total
