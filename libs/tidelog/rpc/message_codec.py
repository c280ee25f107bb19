"""Converts values to and from messages whose fields have the same names.

A value is a dataclass or a NamedTuple. Its type hints say how its fields are read:

- `T | None`: a field with presence; None: it is not set.
- `str` or an `Enum`, for an enum of the message: the enum's word in lower case, as "done" for
  OPERATION_STATE_DONE.
- `TopicPartition`: the message's fields `topic` and `partition`.
- `tuple[tuple[T, ...], ...]`: messages with a single repeated field.
- Metadata `wire_name` of a dataclass's field: the name in the message, if it differs.

Fields of the value that the message lacks keep their defaults. Unit tests compare the names."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from types import UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.wire import error_from_wire, error_to_wire

_Message = TypeVar("_Message", bound=Message)
_Value = TypeVar("_Value")
_Read = Callable[[Any], Any]


class FieldReader(NamedTuple):
    """Reads one field of a value from a message.

    - `read_item`: reads one item of a repeated field of messages; None: the field is another one.
    - `items_of`: the repeated field.
    """

    name: str
    read: _Read
    read_item: _Read | None = None
    items_of: _Read = attrgetter("DESCRIPTOR")


_hints: dict[type, dict[str, Any]] = {}
_readers: dict[tuple[type, type], tuple[FieldReader, ...]] = {}
_reads: dict[tuple[type, type], list[_Read]] = {}
_words: dict[str, dict[int, str]] = {}


def to_wire(value: object, kind: type[_Message]) -> _Message:
    """Converts a value with the fields of `kind`."""
    message = kind()
    fill(message, value)
    return message


def fill(message: Message, value: object) -> None:
    """Sets the message's fields to those of the value."""
    fields: Iterable[Any] = message.DESCRIPTOR.fields
    for field in fields:
        given = getattr(value, field.name)
        if given is None:
            continue
        if field.type == FieldDescriptor.TYPE_ENUM:
            setattr(message, field.name, number_of(field.enum_type, given))
        elif field.type != FieldDescriptor.TYPE_MESSAGE:
            if field.is_repeated:
                getattr(message, field.name).extend(given)
            else:
                setattr(message, field.name, given)
        elif field.is_repeated:
            for item in given:
                fill(getattr(message, field.name).add(), item)
        elif isinstance(given, TidelogError):
            getattr(message, field.name).CopyFrom(error_to_wire(given))
        else:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), given)


def from_wire(message: Message, kind: type[_Value], /, **given: object) -> _Value:
    """Returns the value `kind` with the fields of the message, and those that are given."""
    if given:
        readers = readers_of(type(message), kind)
        return kind(**{r.name: r.read(message) for r in readers if r.name not in given}, **given)
    key = type(message), kind
    reads = _reads.get(key)
    if reads is None:
        reads = _reads[key] = [reader.read for reader in readers_of(*key)]
    return kind(*[read(message) for read in reads])


def readers_of(message: type[Message], kind: type) -> tuple[FieldReader, ...]:
    """Returns the readers of the value's fields, in order. They are determined once, because a
    large cluster is described in tens of thousands of messages."""
    key = message, kind
    readers = _readers.get(key)
    if readers is None:
        fields: Mapping[str, Any] = message.DESCRIPTOR.fields_by_name
        wire_names, defaults = _wire_names(kind), _defaults(kind)
        readers = _readers[key] = tuple(
            _reader(name, hint, fields, wire_names.get(name, name), defaults)
            for name, hint in _hints_of(kind).items()
        )
    return readers


def _reader(
    name: str,
    hint: Any,
    fields: Mapping[str, Any],
    wire_name: str,
    defaults: Mapping[str, Any],
) -> FieldReader:
    if hint is TopicPartition:
        return FieldReader(name, lambda message: TopicPartition(message.topic, message.partition))
    field = fields.get(wire_name)
    if field is None:
        return FieldReader(name, lambda _: defaults[name])
    value_of = attrgetter(wire_name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return FieldReader(name, lambda message: dict(value_of(message)))
    if not field.is_repeated:
        inner = _without_none(hint)
        read = _single(field, inner)
        if inner is hint or not field.has_presence:
            return FieldReader(name, lambda message: read(value_of(message)))
        return FieldReader(
            name,
            lambda message: read(value_of(message)) if message.HasField(wire_name) else None,
        )
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return FieldReader(name, lambda message: tuple(value_of(message)))
    item = get_args(hint)[0]
    read_item = _single(field, item)
    if get_origin(item) is tuple and len(field.message_type.fields) == 1:
        item_of = attrgetter(field.message_type.fields[0].name)
        read_item = lambda message: tuple(item_of(message))  # noqa: E731
    return FieldReader(
        name,
        lambda message: tuple([read_item(each) for each in value_of(message)]),
        read_item,
        value_of,
    )


def _single(field: Any, kind: Any) -> _Read:
    """Returns what converts a field's value, or an item of a repeated one."""
    if field.type == FieldDescriptor.TYPE_ENUM:
        words = words_of(field.enum_type)
        return partial(_word, words) if kind is str else lambda number: kind(_word(words, number))
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return _as_is
    return error_from_wire if kind is TidelogError else partial(_from_wire, kind)


def _from_wire(kind: type, message: Message) -> Any:
    return from_wire(message, kind)


def _word(words: Mapping[int, str], number: int) -> str:
    """Raises `ValueError` for a number of a newer version."""
    try:
        return words[number]
    except KeyError:
        raise ValueError(f"{number} is none of {words}") from None


def _as_is(value: Any) -> Any:
    return value


def words_of(enum_type: EnumDescriptor) -> Mapping[int, str]:
    """Returns the words of an enum by number: "done" for OPERATION_STATE_DONE."""
    words = _words.get(enum_type.full_name)
    if words is None:
        prefix = enum_type.values[0].name.removesuffix("UNSPECIFIED")
        words = {v.number: v.name.removeprefix(prefix).lower() for v in enum_type.values}
        _words[enum_type.full_name] = words
    return words


def number_of(enum_type: EnumDescriptor, word: str | enum.Enum) -> Any:
    """Returns the number of an enum's word, as a value of the enum's type. Raises LookupError if
    there is none."""
    text = word.value if isinstance(word, enum.Enum) else word
    for number, known in words_of(enum_type).items():
        if known == text:
            return number
    raise LookupError(f"{text!r} is no word of {enum_type.full_name}")


def _hints_of(kind: type) -> dict[str, Any]:
    if kind not in _hints:
        _hints[kind] = get_type_hints(kind)
    return _hints[kind]


def _wire_names(kind: type) -> dict[str, str]:
    if not dataclasses.is_dataclass(kind):
        return {}
    return {f.name: f.metadata.get("wire_name", f.name) for f in dataclasses.fields(kind)}


def _defaults(kind: Any) -> Mapping[str, Any]:
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        # A field that has none and that the message lacks fails where it is read.
        return {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    defaults: Mapping[str, Any] = kind._field_defaults
    return defaults


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return next(each for each in get_args(hint) if each is not type(None))
    return hint
