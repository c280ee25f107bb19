"""Checks JSON values against a schema before a task runs. Pure.

It decides as Spark's `from_json` does, by the JSON type of each field in the schema. Values
that only Spark can check, such as the format of a timestamp, pass.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
)

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_FRACTIONS = (FloatType, DoubleType)


def mismatch(value: bytes, schema: StructType) -> str:
    """Returns why the value does not match; empty: it does."""
    try:
        parsed = json.loads(value)
    except ValueError as error:
        return f"it is not JSON ({error})"
    if not isinstance(parsed, dict):
        return f"it is {_kind(parsed)}, and not an object"
    named = schema.fieldNames()
    if parsed and not set(parsed) & set(named):
        return f"it has the fields {', '.join(sorted(parsed))}, and none of {', '.join(named)}"
    return _object_mismatch(parsed, schema, "")


def _object_mismatch(value: dict[str, Any], schema: StructType, path: str) -> str:
    for field in schema.fields:
        if value.get(field.name) is not None:
            found = _mismatch(value[field.name], field.dataType, f"{path}{field.name}")
            if found:
                return found
    return ""


def _mismatch(value: Any, kind: DataType, path: str) -> str:
    problem = f"field {path} is {_kind(value)}, and {kind.simpleString()} in the schema"
    if isinstance(kind, StructType):
        return _object_mismatch(value, kind, f"{path}.") if isinstance(value, dict) else problem
    if isinstance(kind, ArrayType):
        if not isinstance(value, list):
            return problem
        found = (_mismatch(v, kind.elementType, f"{path}[]") for v in value if v is not None)
        return next(filter(None, found), "")
    if isinstance(kind, MapType):
        if not isinstance(value, dict):
            return problem
        values = (v for v in value.values() if v is not None)
        found = (_mismatch(v, kind.valueType, f"{path}{{}}") for v in values)
        return next(filter(None, found), "")
    return "" if _is_scalar(value, kind) else problem


def _is_scalar(value: Any, kind: DataType) -> bool:
    if isinstance(kind, BooleanType):
        return isinstance(value, bool)
    if isinstance(kind, _WHOLE):
        return type(value) is int
    if isinstance(kind, _FRACTIONS):
        return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")
    if isinstance(kind, DecimalType):
        return type(value) in (int, float, str)
    # A string field accepts any value, and the other types only Spark can check.
    return True


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, bool):
        return "a boolean"
    return "a string" if isinstance(value, str) else "a number"
