"""Protobuf messages as rows: the schema, and the conversion of each message. Pure.

The types are those of Spark's own `from_protobuf`, which needs a package from Maven. An enum is
its name, an unsigned number has the next larger type, and a field with presence is null if it
is not set.
"""

from __future__ import annotations

import difflib
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tidelog.spark.option_values import OptionError

# Descriptors come from two implementations with the same members, so they are not typed below.
_Kind = FieldDescriptor
_TYPES: dict[int, DataType] = {
    _Kind.TYPE_BOOL: BooleanType(),
    _Kind.TYPE_BYTES: BinaryType(),
    _Kind.TYPE_DOUBLE: DoubleType(),
    _Kind.TYPE_ENUM: StringType(),
    _Kind.TYPE_FIXED32: LongType(),
    _Kind.TYPE_FIXED64: DecimalType(20, 0),
    _Kind.TYPE_FLOAT: FloatType(),
    _Kind.TYPE_INT32: IntegerType(),
    _Kind.TYPE_INT64: LongType(),
    _Kind.TYPE_SFIXED32: IntegerType(),
    _Kind.TYPE_SFIXED64: LongType(),
    _Kind.TYPE_SINT32: IntegerType(),
    _Kind.TYPE_SINT64: LongType(),
    _Kind.TYPE_STRING: StringType(),
    _Kind.TYPE_UINT32: LongType(),
    _Kind.TYPE_UINT64: DecimalType(20, 0),
}
_LARGE = frozenset({_Kind.TYPE_FIXED64, _Kind.TYPE_UINT64})


def message_class(descriptors: bytes, name: str) -> type[Message]:
    """Returns the class of a message in a set of file descriptors.

    - `descriptors`: as `protoc --include_imports --descriptor_set_out` writes them.

    Raises `OptionError`.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        names = [m for file in files.file for m in _messages(file.package, file.message_type)]
        if name not in names:
            raise OptionError(f"option --message is {name!r}; {_meant(name, names)}")
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except (DecodeError, TypeError) as error:
        raise OptionError(
            f"option --descriptors does not name a set of file descriptors ({error}); make one "
            "with protoc --include_imports --descriptor_set_out=FILE"
        ) from error


def schema_of(descriptor: Any) -> StructType:
    """Raises `OptionError` for a message that contains itself: a table has a finite depth."""
    return _struct(descriptor, ())


def row_of(message: Message) -> tuple[Any, ...]:
    """Returns the fields of the message in the order of the schema."""
    return tuple(_field(message, field) for field in message.DESCRIPTOR.fields)


def parse(of: type[Message], value: bytes) -> Message | None:
    """Parses a message; None: it is not one.

    A value with fields that the message does not name is not one, either: these fields would be
    lost, and the value may be of another message.
    """
    message = of()
    try:
        message.ParseFromString(value)
    except DecodeError:
        return None
    return None if _has_unknown(message) else message


def mismatch(of: type[Message], value: bytes) -> str:
    """Returns why the value does not match; empty: it does."""
    message = of()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        return f"it is not a protobuf message ({error})"
    unknown = sorted(_unknown_numbers(message))
    if unknown:
        return f"it has fields with unknown numbers: {', '.join(map(str, unknown))}"
    return "a message in it has unknown fields" if _has_unknown(message) else ""


def _messages(package: str, messages: Any) -> list[str]:
    found: list[str] = []
    for message in messages:
        name = f"{package}.{message.name}".removeprefix(".")
        found += [name, *_messages(name, message.nested_type)]
    return found


def _meant(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(names))}"


def _struct(descriptor: Any, within: tuple[str, ...]) -> StructType:
    if descriptor.full_name in within:
        raise OptionError(
            f"message {within[0]} contains {descriptor.full_name} within itself, and a table has "
            "a fixed depth; archive it with --value raw"
        )
    inside = (*within, descriptor.full_name)
    return StructType([StructField(f.name, _type(f, inside)) for f in descriptor.fields])


def _type(field: Any, within: tuple[str, ...]) -> DataType:
    if _is_map(field):
        key, value = field.message_type.fields
        return MapType(_single(key, within), _single(value, within))
    single = _single(field, within)
    return ArrayType(single) if field.is_repeated else single


def _single(field: Any, within: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        return _struct(field.message_type, within)
    return _TYPES[field.type]


def _is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        of_key, of_value = field.message_type.fields
        return {_value(k, of_key): _value(value[k], of_value) for k in value}
    if field.is_repeated:
        return [_value(one, field) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(value, field)


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return row_of(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if field.type in _LARGE else value


def _unknown_numbers(message: Message) -> set[int]:
    fields: Any = UnknownFieldSet(message)
    return {field.field_number for field in fields}


def _has_unknown(message: Message) -> bool:
    if _unknown_numbers(message):
        return True
    return any(_has_unknown(inner) for inner in _inner(message))


def _inner(message: Message) -> list[Message]:
    found: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if _is_map(field):
            of_value = field.message_type.fields_by_name["value"]
            found += value.values() if of_value.message_type is not None else ()
        else:
            found += value if field.is_repeated else (value,)
    return found
