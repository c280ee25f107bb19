"""Bounds the work that a request can cause before the work is done: its bytes before it is parsed,
the entries of a large one before they become objects, and counts and texts before it is served.
Generic: a new field or RPC is bounded by the defaults of `request_bounds`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tidelog import request_bounds
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire_fields import BYTES, MalformedMessageError, walk_fields

# What a message of so many bytes costs to parse is some milliseconds, whatever it holds.
CHEAP_BYTES = 1 << 20
# Of a larger one, in all that it nests: as many as a valid request has, and some.
MAX_FIELDS = 16_000
# A nested message shorter than this is not walked: its bytes bound what it holds.
_SHORT_BYTES = 128

_INTERNAL_SERVICES = ("tidelog.v1.Replica", "tidelog.v1.ControllerService")
_PRODUCE = "/tidelog.v1.BrokerService/Produce"


class Rejected(NamedTuple):
    """What the deserializer returns in place of a request: why there is none."""

    error: TidelogError


def is_internal(method: str) -> bool:
    """Whether brokers and controllers alone call it: `/package.Service/Method`."""
    return method.lstrip("/").startswith(_INTERNAL_SERVICES)


def max_request_bytes(method: str) -> int:
    if method == _PRODUCE:
        return request_bounds.MAX_PRODUCE_REQUEST_BYTES
    return request_bounds.MAX_REQUEST_BYTES


def bounded_deserializer(
    method: str, parse: Callable[[bytes], Any], descriptor: Descriptor | None
) -> Callable[[bytes], Any]:
    """`descriptor`: of the request; None where it is not known. Returns `Rejected` for a request
    that must not be parsed."""
    limit = max_request_bytes(method)
    name = method.rpartition("/")[2]

    def deserialize(data: bytes) -> Any:
        try:
            request_bounds.check_request_bytes(name, len(data), limit)
            if descriptor is not None and len(data) > CHEAP_BYTES:
                check_field_count(data, descriptor)
        except TidelogError as error:
            return Rejected(error)
        return parse(data)

    return deserialize


def check_field_count(data: bytes, descriptor: Descriptor) -> None:
    """Raises INVALID_REQUEST for a message of more than MAX_FIELDS fields, those of nested messages
    included; what is no message is left to the parser."""
    try:
        left = _count(data, 0, len(data), descriptor, MAX_FIELDS)
    except MalformedMessageError:
        return
    if left < 0:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a {descriptor.name} of {len(data)} bytes has more than {MAX_FIELDS} fields; send "
            "several requests",
        )


def _count(data: bytes, start: int, end: int, descriptor: Descriptor, left: int) -> int:
    fields = descriptor.fields_by_number
    for number, wire_type, content, content_end in walk_fields(data, start, end):
        left -= 1
        if left < 0:
            return left
        if wire_type != BYTES or content_end - content < _SHORT_BYTES:
            continue
        field = fields.get(number)
        if field is not None and field.message_type is not None:
            left = _count(data, content, content_end, field.message_type, left)
            if left < 0:
                return left
    return left


# Checks one field of a message.
_Check = Callable[[Message], None]
_checks: dict[Any, tuple[_Check, ...]] = {}


def check_message(message: Message) -> None:
    """Raises INVALID_REQUEST, naming the field and its limit."""
    for check in _checks_of(message.DESCRIPTOR):
        check(message)


def _checks_of(descriptor: Any) -> tuple[_Check, ...]:
    checks = _checks.get(descriptor)
    if checks is None:
        found = (_check_of(field) for field in descriptor.fields)
        checks = _checks[descriptor] = tuple(check for check in found if check is not None)
    return checks


def _check_of(field: FieldDescriptor) -> _Check | None:
    """None: nothing of it needs one."""
    is_text = field.type == FieldDescriptor.TYPE_STRING
    name, full_name = field.name, field.full_name
    if field.is_repeated:
        return _check_repeated(field, is_text)
    if is_text:

        def check_text(message: Message) -> None:
            value = getattr(message, name)
            if len(value) * 4 > request_bounds.MAX_TEXT_BYTES:
                request_bounds.check_text(full_name, len(value.encode()))

        return check_text
    if field.message_type is not None:

        def check_nested(message: Message) -> None:
            if message.HasField(name):
                check_message(getattr(message, name))

        return check_nested
    return None


def _check_repeated(field: FieldDescriptor, is_text: bool) -> _Check | None:
    name, full_name = field.name, field.full_name
    of_message = field.message_type
    check_entry: Callable[[Any], None] | None = None
    if of_message is not None and of_message.GetOptions().map_entry:
        return _check_map(name, full_name)
    if is_text:

        def check_entry(text: str) -> None:
            request_bounds.check_text(full_name, len(text.encode()))

    elif of_message is not None and _checks_of(of_message):
        check_entry = check_message

    def check(message: Message) -> None:
        entries = getattr(message, name)
        if not entries:
            return
        request_bounds.check_entries(full_name, len(entries))
        if check_entry is not None:
            for entry in entries:
                check_entry(entry)

    return check


def _check_map(name: str, full_name: str) -> _Check:
    def check(message: Message) -> None:
        entries = getattr(message, name)
        request_bounds.check_entries(full_name, len(entries))
        for key, value in entries.items():
            for content in (key, value):
                if isinstance(content, str):
                    request_bounds.check_text(full_name, len(content.encode()))

    return check
