"""Which data frames can be written."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tidelog.spark.columns import COLUMNS, check_written, schema_of
from tidelog.spark.option_values import OptionError


def frame(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])  # type: ignore[arg-type]


def test_a_frame_that_was_read_can_be_written() -> None:
    check_written(schema_of(COLUMNS), None)


def test_a_value_column_suffices_where_the_topic_is_given() -> None:
    check_written(frame(value=StringType()), "sea")


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        (frame(value=BinaryType()), None, "no topic is configured"),
        (frame(key=BinaryType()), "sea", "there is no column value"),
        (frame(value=DoubleType()), "sea", "value is double; it must be binary or string"),
        (
            frame(value=BinaryType(), partition=LongType()),
            "sea",
            "is bigint; it must be int",
        ),
        (
            frame(value=BinaryType(), price=IntegerType()),
            "sea",
            "price cannot be written",
        ),
    ],
)
def test_an_unsuitable_column_is_reported(
    schema: StructType, topic: str | None, message: str
) -> None:
    with pytest.raises(OptionError) as raised:
        check_written(schema, topic)
    assert message in raised.value.message
