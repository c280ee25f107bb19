"""The format of an archive's values: raw bytes, or columns of a schema. Pure.

An archive has one format, which it stores: Parquet files of different formats are not one table.
"""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidelog.spark.option_values import OptionError
from tidelog_pipeline.archive.core import json_values, protobuf_values

VERSION = 1


class ValueKind(enum.StrEnum):
    RAW = "raw"
    JSON = "json"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """The format of values.

    - `schema`: of JSON objects or protobuf messages.
    - `keep_raw`: the bytes are kept beside the parsed value.
    """

    kind: ValueKind = ValueKind.RAW
    schema: StructType | None = None
    descriptors: bytes = b""
    message: str = ""
    keep_raw: bool = False

    @classmethod
    def of_json(cls, schema: StructType, keep_raw: bool = False) -> ValueFormat:
        """Raises `OptionError`."""
        _check_structs(schema, "option --value-schema", "leave it out")
        return cls(ValueKind.JSON, schema, keep_raw=keep_raw)

    @classmethod
    def of_protobuf(cls, descriptors: bytes, message: str, keep_raw: bool = False) -> ValueFormat:
        """Raises `OptionError`."""
        of = protobuf_values.message_class(descriptors, message)
        schema = protobuf_values.schema_of(of.DESCRIPTOR)
        _check_structs(schema, f"message {message}", "archive it with --value raw")
        return cls(ValueKind.PROTOBUF, schema, descriptors, message, keep_raw)

    @property
    def mismatch(self) -> Callable[[bytes], str]:
        """A function that returns why a value does not match; empty: it does."""
        if self.kind is ValueKind.RAW:
            return lambda _: ""
        assert self.schema is not None, "other formats have one"
        if self.kind is ValueKind.JSON:
            schema = self.schema
            return lambda value: json_values.mismatch(value, schema)
        of = protobuf_values.message_class(self.descriptors, self.message)
        return lambda value: protobuf_values.mismatch(of, value)

    def __str__(self) -> str:
        schema = "" if self.schema is None else f" of {self.message or self.schema.simpleString()}"
        return f"{self.kind} values{schema}{' beside their bytes' if self.keep_raw else ''}"


def _check_structs(schema: StructType, of: str, right: str) -> None:
    name = _empty_struct(schema)
    if name is not None:
        where = f": {name} has none" if name else ""
        raise OptionError(
            f"{of} is without fields{where}, and Parquet cannot store such a column; {right}"
        )


def _empty_struct(of: DataType) -> str | None:
    """Returns the path of a struct without fields; None: there is none."""
    match of:
        case StructType(fields=fields):
            if not fields:
                return ""
            inner = ((field.name, _empty_struct(field.dataType)) for field in fields)
            return next((f"{n}.{path}".rstrip(".") for n, path in inner if path is not None), None)
        case ArrayType(elementType=element):
            return _empty_struct(element)
        case MapType(keyType=key, valueType=value):
            found = _empty_struct(key)
            return _empty_struct(value) if found is None else found
    return None


def format_to_json(form: ValueFormat) -> bytes:
    return json.dumps(
        {
            "version": VERSION,
            "kind": form.kind,
            "schema": None if form.schema is None else form.schema.jsonValue(),
            "descriptors": base64.b64encode(form.descriptors).decode(),
            "message": form.message,
            "keep_raw": form.keep_raw,
        }
    ).encode()


def format_from_json(text: bytes, name: str) -> ValueFormat:
    """Raises `OptionError` for a text that `format_to_json` of this version does not write."""
    try:
        value: Any = json.loads(text)
        if value["version"] != VERSION:
            raise ValueError(f"it has version {value['version']!r}, this is {VERSION}")
        schema = value["schema"]
        return ValueFormat(
            ValueKind(value["kind"]),
            None if schema is None else StructType.fromJson(schema),
            base64.b64decode(value["descriptors"]),
            value["message"],
            value["keep_raw"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(
            f"{name} contains no known value format: {error}; restore it from a "
            "backup of the state directory"
        ) from error


def effective_format(requested: ValueFormat | None, stored: ValueFormat | None) -> ValueFormat:
    """Returns the format to use. `stored`: that of the archive. Raises `OptionError`."""
    if stored is None:
        return requested or ValueFormat()
    if requested is not None and (str(requested), requested.schema) != (str(stored), stored.schema):
        raise OptionError(
            f"the archive has {stored}, and not {requested}: leave the options of values out to "
            "continue with it, or begin another archive"
        )
    return stored


def check_samples(form: ValueFormat, samples: list[tuple[str, bytes]]) -> None:
    """Raises `OptionError` if none of the samples matches, with the fault of the first.

    A few values that do not match are archived as they are.

    - `samples`: values with their positions.
    """
    mismatch = form.mismatch
    found = [(where, mismatch(value)) for where, value in samples]
    if found and all(why for _, why in found):
        where, why = found[0]
        raise OptionError(
            f"none of {len(found)} sampled values matches the schema ({form}); the one at "
            f"{where}: {why}. Give their schema, or archive them with --value raw"
        )
