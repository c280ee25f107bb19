"""Builds requests, and rejects values that their fields cannot hold or no service accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import MAX_REQUEST_BYTES, check_request_bytes
from tidelog.rpc.message_bounds import check_message

_Fields = ParamSpec("_Fields")
_Message = TypeVar("_Message", bound=Message)

# No request uses negative numbers, even if its field can hold them.
_MAX_NUMBER = {
    FieldDescriptor.CPPTYPE_INT32: 2**31 - 1,
    FieldDescriptor.CPPTYPE_INT64: 2**63 - 1,
    FieldDescriptor.CPPTYPE_UINT32: 2**32 - 1,
    FieldDescriptor.CPPTYPE_UINT64: 2**64 - 1,
}
_MAX_QUOTED_CHARACTERS = 40


def built(
    message: Callable[_Fields, _Message], /, *args: _Fields.args, **fields: _Fields.kwargs
) -> _Message:
    """Returns `message` with these fields. Raises INVALID_REQUEST, naming the field, for a number
    that does not fit into the field, for text that is not valid UTF-8, and for more than a request
    may hold (`request_bounds`)."""
    try:
        made = message(*args, **fields)
    except (TypeError, ValueError) as error:
        raise TidelogError(ErrorCode.INVALID_REQUEST, _problem(message, fields, error)) from error
    check_message(made)
    check_request_bytes(made.DESCRIPTOR.name, made.ByteSize(), MAX_REQUEST_BYTES)
    return made


def built_from(value: object, message: type[_Message]) -> _Message:
    """Returns `message` with the fields of a value that has the same ones, checked as `built`."""
    names = message.DESCRIPTOR.fields_by_name
    return built(message, **{name: getattr(value, name) for name in names})


def _problem(message: object, fields: Mapping[str, object], error: Exception) -> str:
    known: Mapping[str, FieldDescriptor] = message.DESCRIPTOR.fields_by_name  # type: ignore[attr-defined]  # of every message
    for name, value in fields.items():
        most = _MAX_NUMBER.get(known[name].cpp_type)
        for part in _parts(value):
            if isinstance(part, str) and not _is_utf8(part):
                return (
                    f"{name} {part[:_MAX_QUOTED_CHARACTERS]!r} cannot be sent, because it is no "
                    "text in UTF-8; correct its characters"
                )
            if isinstance(part, int) and most is not None and not -most - 1 <= part <= most:
                return f"{name} {part} cannot be sent; give a number from 0 to {most}"
    return f"the request cannot be sent: {error}; correct its fields"


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield key
            yield held
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        yield from value
    else:
        yield value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
