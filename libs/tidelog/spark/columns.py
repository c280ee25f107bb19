"""The columns of a reader's rows. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


class Column(NamedTuple):
    name: str
    type: DataType


COLUMNS = (
    Column("key", BinaryType()),
    Column("value", BinaryType()),
    Column("topic", StringType()),
    Column("partition", IntegerType()),
    Column("offset", LongType()),
    Column("leader_epoch", IntegerType()),
    Column("timestamp", TimestampType()),
    Column("headers", HEADERS_TYPE),
)


def chosen_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Returns the columns in the order of `names`, all of which must exist."""
    by_name = {column.name: column for column in COLUMNS}
    return tuple(by_name[name] for name in names)


def schema_of(columns: Iterable[Column]) -> StructType:
    return StructType([StructField(column.name, column.type) for column in columns])
