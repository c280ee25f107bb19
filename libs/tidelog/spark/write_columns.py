"""The columns of a data frame that can be written. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from tidelog.spark.columns import HEADERS_TYPE
from tidelog.spark.option_values import OptionError

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
