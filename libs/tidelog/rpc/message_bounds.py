"""Bounds the work that a request can cause, before the work is done: its size before it is parsed,
the entries of a large one before they become objects, and counts and texts before it is served.
The checks are generic: the defaults of `request_bounds` apply to a new field or RPC."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tidelog import request_bounds
from tidelog.errors import ErrorCode, TidelogError
from tidelog.memory_shortage import is_memory_shortage
from tidelog.rpc.list_limits import check_lists, lists_of
from tidelog.rpc.sliced_parsing import UnparsedRequest
from tidelog.wire_fields import BYTES, MalformedMessageError, walk_fields

# Parsing a message of this size takes some milliseconds, whatever it contains.
CHEAP_BYTES = 1 << 20
# The same between brokers and controllers: an entry has at least two bytes, a packed number one.
CHEAP_INTERNAL_BYTES = 2 * request_bounds.MAX_ENTRIES_PER_REQUEST
# Maximum number of fields of a larger message, nested ones included: more than a valid one has.
MAX_FIELDS = 16_000
# A nested message shorter than this is not walked, because its size bounds its fields.
_SHORT_BYTES = 128
# Checking this many entries takes two milliseconds.
ENTRIES_PER_SLICE = 1_000

_INTERNAL_SERVICES = ("tidelog.v1.Replica", "tidelog.v1.ControllerService")
PRODUCE = "/tidelog.v1.BrokerService/Produce"
# Streams that last until their client ends them, and health checks.
_KEPT = ("/grpc.health.", "/grpc.reflection.", "/tidelog.v1.InspectService/WatchEvents")
_PRODUCE_REQUEST = "tidelog.v1.ProduceRequest"


class Rejected(NamedTuple):
    """Returned by the deserializer in place of a request, with the reason."""

    error: TidelogError


def is_internal(method: str) -> bool:
    """Returns whether only brokers and controllers call it. `method`: `/package.Service/Method`."""
    return method.lstrip("/").startswith(_INTERNAL_SERVICES)


def max_request_bytes(method: str) -> int:
    if method == PRODUCE:
        return request_bounds.MAX_PRODUCE_REQUEST_BYTES
    if is_internal(method):
        return request_bounds.MAX_INTERNAL_REQUEST_BYTES
    if method.startswith(_KEPT):
        return request_bounds.MAX_KEPT_REQUEST_BYTES
    return request_bounds.MAX_REQUEST_BYTES


def bounded_deserializer(
    method: str, parse: Callable[[bytes], Any], descriptor: Descriptor | None
) -> Callable[[bytes], Any]:
    """Returns a deserializer that checks bounds. It returns `Rejected` for a request that must not
    be parsed, and an `UnparsedRequest`, for `parsed`, for a large one between brokers and
    controllers. `descriptor`: of the request; None: it is not known."""
    limit = max_request_bytes(method)
    name = method.rpartition("/")[2]
    is_sliced = is_internal(method)
    lists = lists_of(descriptor) if descriptor is not None and is_sliced else None

    def deserialize(data: bytes) -> Any:
        try:
            request_bounds.check_request_bytes(name, len(data), limit)
            if descriptor is not None and is_sliced and len(data) > CHEAP_INTERNAL_BYTES:
                return UnparsedRequest(data, descriptor)
            if descriptor is not None and not is_sliced and len(data) > CHEAP_BYTES:
                check_field_count(data, descriptor)
        except TidelogError as error:
            return Rejected(error)
        try:
            request = parse(data)
            if lists is not None:
                check_lists(request, lists)
        except TidelogError as error:
            return Rejected(error)
        except (DecodeError, MemoryError) as error:
            return _unreadable(name, len(data), error)
        return request

    return deserialize


async def parsed(method: str, request: Any) -> Any:
    """Returns the result of the deserializer, with an `UnparsedRequest` parsed or rejected."""
    if not isinstance(request, UnparsedRequest):
        return request
    try:
        return await request.parse()
    except TidelogError as error:
        return Rejected(error)
    except (DecodeError, MemoryError) as error:
        return _unreadable(method.rpartition("/")[2], len(request.data), error)


def _unreadable(name: str, size_bytes: int, why: DecodeError | MemoryError) -> Rejected:
    if is_memory_shortage(why):
        return Rejected(
            TidelogError(
                ErrorCode.INTERNAL,
                f"a {name} request of {size_bytes} bytes could not be read, and nothing was "
                "done: the process may not use more memory",
            )
        )
    return Rejected(
        TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a {name} request of {size_bytes} bytes is no message of that type ({why}), "
            "and nothing was done; send a request of the client's protocol version",
        )
    )


def check_field_count(data: bytes, descriptor: Descriptor) -> None:
    """Raises INVALID_REQUEST for a message of more than MAX_FIELDS fields, those of nested messages
    included. A malformed message is left to the parser."""
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


class _FieldCheck(NamedTuple):
    """Check of one field.

    - `check`: raises INVALID_REQUEST, and returns the entries of the field in this message.
    - `of_messages`: the entries are messages, which are checked in their turn."""

    check: Callable[[Message], Collection[Any]]
    of_messages: bool


_NONE: tuple[Any, ...] = ()
_checks: dict[Any, tuple[_FieldCheck, ...]] = {}


def check_message(message: Message) -> None:
    """Raises INVALID_REQUEST, with the field and its limit in the message."""
    for _ in check_in_slices(message):
        pass


def check_in_slices(message: Message) -> Iterator[None]:
    """As `check_message`, but yields after every ENTRIES_PER_SLICE entries, nested ones included,
    so that the caller can let other tasks run. A Produce request is checked without a pause, within
    the milliseconds that its own limit allows: the producer's next one must not overtake it."""
    name = message.DESCRIPTOR.full_name
    limit = request_bounds.total_entries_limit(name)
    per_slice = limit if name == _PRODUCE_REQUEST else ENTRIES_PER_SLICE
    total = checked = 0
    levels: list[Iterator[Any]] = [iter((message,))]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
            continue
        checked += 1
        if checked % per_slice == 0:
            yield
        for check, of_messages in _checks_of(entry.DESCRIPTOR):
            entries = check(entry)
            if not entries:
                continue
            total += len(entries)
            if total > limit:
                request_bounds.check_total_entries(name, total)
            if of_messages:
                levels.append(iter(entries))


def _checks_of(descriptor: Any) -> tuple[_FieldCheck, ...]:
    checks = _checks.get(descriptor)
    if checks is None:
        found = (_check_of(field) for field in descriptor.fields)
        checks = _checks[descriptor] = tuple(check for check in found if check is not None)
    return checks


def _check_of(field: FieldDescriptor) -> _FieldCheck | None:
    """Returns the check of a field; None: it needs none."""
    is_text = field.type == FieldDescriptor.TYPE_STRING
    name, full_name = field.name, field.full_name
    if field.is_repeated:
        return _check_repeated(field, is_text)
    if is_text:

        def check_text(message: Message) -> Collection[Any]:
            _check_text(full_name, getattr(message, name))
            return _NONE

        return _FieldCheck(check_text, of_messages=False)
    if field.message_type is not None:

        def nested(message: Message) -> Collection[Any]:
            return (getattr(message, name),) if message.HasField(name) else _NONE

        return _FieldCheck(nested, of_messages=True) if _needs_check(field) else None
    return None


def _needs_check(field: FieldDescriptor) -> bool:
    """Returns whether the message in the field contains a field with a check."""
    return bool(_checks_of(field.message_type))


def _check_repeated(field: FieldDescriptor, is_text: bool) -> _FieldCheck:
    name, full_name = field.name, field.full_name
    of_message = field.message_type
    if of_message is not None and of_message.GetOptions().map_entry:
        return _FieldCheck(_check_map(name, full_name), of_messages=False)

    def check(message: Message) -> Collection[Any]:
        entries: Collection[Any] = getattr(message, name)
        if entries:
            request_bounds.check_entries(full_name, len(entries))
            if is_text:
                for text in entries:
                    _check_text(full_name, text)
        return entries

    return _FieldCheck(check, of_messages=of_message is not None and _needs_check(field))


def _check_map(name: str, full_name: str) -> Callable[[Message], Collection[Any]]:
    def check(message: Message) -> Collection[Any]:
        entries = getattr(message, name)
        request_bounds.check_entries(full_name, len(entries))
        for key, value in entries.items():
            for content in (key, value):
                if isinstance(content, str):
                    _check_text(full_name, content)
        found: Collection[Any] = entries
        return found

    return check


def _check_text(full_name: str, text: str) -> None:
    """Checks the size of a text. A character has at most four bytes, so few texts are encoded."""
    if len(text) * 4 > request_bounds.MAX_TEXT_BYTES:
        request_bounds.check_text(full_name, len(text.encode()))
