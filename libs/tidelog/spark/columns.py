"""The columns of rows that are read, and of data frames that can be written. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

from tidelog.spark.option_values import OptionError

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

_CONTENT: tuple[DataType, ...] = (BinaryType(), StringType())
# Each column with its types. A reader's positions are ignored when its rows are written.
WRITTEN: Mapping[str, tuple[DataType, ...]] = {
    "key": _CONTENT,
    "value": _CONTENT,
    "headers": (HEADERS_TYPE,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}
LEFT_OUT = ("offset", "leader_epoch", "timestamp")


def chosen_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Returns the columns in the order of `names`, all of which must exist."""
    by_name = {column.name: column for column in COLUMNS}
    return tuple(by_name[name] for name in names)


def schema_of(columns: Iterable[Column]) -> StructType:
    return StructType([StructField(column.name, column.type) for column in columns])


def check_written(schema: StructType, topic: str | None) -> None:
    """Raises `OptionError` if the schema cannot be written."""
    for column in schema.fields:
        if column.name in LEFT_OUT:
            continue
        types = WRITTEN.get(column.name)
        if types is None:
            raise OptionError(
                f"column {column.name} cannot be written; there are {', '.join(WRITTEN)}. Put it "
                "into value, for instance by to_json(struct(...)), or leave it out by select(...)"
            )
        if not any(_alike(column.dataType, one) for one in types):
            right = " or ".join(one.simpleString() for one in types)
            raise OptionError(
                f"column {column.name} is {column.dataType.simpleString()}; it must be {right}"
            )
    names = schema.fieldNames()
    if "value" not in names:
        raise OptionError("there is no column value; name one, as in df.selectExpr('x as value')")
    if topic is None and "topic" not in names:
        raise OptionError('no topic is configured: set .option("topic", "sea"), or a column topic')


def _alike(one: DataType, other: DataType) -> bool:
    """Compares types without their nullability."""
    return one.simpleString() == other.simpleString()
