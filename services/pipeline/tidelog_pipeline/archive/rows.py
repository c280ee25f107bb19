"""Converts records to rows of an archive, in Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from tidelog_pipeline.archive.core import protobuf_values
from tidelog_pipeline.archive.core.value_format import ValueFormat, ValueKind
from tidelog_pipeline.archive.span_join import with_topic_id

# Directories of an archive, from the outermost to the innermost.
PARTITIONED_BY = ("topic", "date", "hour")
_FIRST_YEAR, _LAST_YEAR = 1, 9999
_UNREAD = "__unread"


def archive_rows(frame: DataFrame, form: ValueFormat, topic_ids: Mapping[str, str]) -> DataFrame:
    """Returns the archive's rows, with dates and hours in UTC.

    The session's time zone has to be UTC. A record with an invalid time, e.g. in another unit,
    has no date and hour. Spark stores it in the directories of null.

    - `frame`: all columns of the data source, including headers.
    """
    return with_topic_id(frame, topic_ids).select(
        "partition",
        "offset",
        "leader_epoch",
        "timestamp",
        "key",
        *_values(form),
        "headers",
        "topic_id",
        "topic",
        *(column.alias(name) for name, column in hour_columns().items()),
    )


def hour_columns() -> dict[str, Column]:
    """Returns the date and the hour of a row by the names of their directories."""
    return {
        "date": sf.when(is_dated(), sf.date_format("timestamp", "yyyy-MM-dd")),
        "hour": sf.when(is_dated(), sf.date_format("timestamp", "HH")),
    }


def is_dated() -> Column:
    """Null for a row without a time."""
    return sf.year("timestamp").between(_FIRST_YEAR, _LAST_YEAR)


def _values(form: ValueFormat) -> list[Column]:
    """Returns the column `value` and, with a schema, `unread`.

    `unread` has the bytes of a value that does not match the schema. With `keep_raw`, the
    column `raw` has the bytes of each value.
    """
    if form.kind is ValueKind.RAW:
        return [sf.col("value")]
    assert form.schema is not None, "all but raw have one"
    parsed = _from_json(form.schema) if form.kind is ValueKind.JSON else _from_protobuf(form)
    unread = sf.when(parsed.isNull(), sf.col("value")).alias("unread")
    raw = [sf.col("value").alias("raw")] if form.keep_raw else []
    return [parsed.alias("value"), unread, *raw]


def _from_json(schema: StructType) -> Column:
    """Null for a value that does not match entirely.

    A truncated value does not match, nor does a value with further text behind it, which Spark
    ignores.
    """
    text = sf.col("value").cast("string")
    alone = sf.from_json(sf.concat(sf.lit("["), text, sf.lit("]")), ArrayType(StringType()))
    with_unread = StructType([*schema.fields, StructField(_UNREAD, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNREAD}
    parsed = sf.from_json(text, with_unread, options)
    fields = [parsed[name].alias(name) for name in schema.fieldNames()]
    fits = parsed.isNotNull() & parsed[_UNREAD].isNull() & (sf.size(alone) == 1)
    return sf.when(fits, sf.struct(*fields))


def _from_protobuf(form: ValueFormat) -> Column:
    assert form.schema is not None
    descriptors, message = form.descriptors, form.message

    def read(value: bytes | None) -> Any:
        return None if value is None else _reader(descriptors, message)(bytes(value))

    return sf.udf(read, form.schema)(sf.col("value").cast(BinaryType()))


@functools.cache
def _reader(descriptors: bytes, message: str) -> Callable[[bytes], tuple[Any, ...] | None]:
    """Cached, once in each executor process."""
    of = protobuf_values.message_class(descriptors, message)

    def read(value: bytes) -> tuple[Any, ...] | None:
        parsed = protobuf_values.parse(of, value)
        return None if parsed is None else protobuf_values.row_of(parsed)

    return read
