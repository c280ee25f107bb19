"""The input of a task that reads, and how the task reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import OffsetRange
from tidelog.spark.range_reader import read_range


class RangePartition(InputPartition):
    """A task's range of offsets. It is None if a batch is empty: Spark has a task read that,
    too."""

    value: OffsetRange | None


def range_partitions(ranges: Iterable[OffsetRange]) -> list[InputPartition]:
    return [RangePartition(one) for one in ranges]


def read_partition(
    partition: InputPartition, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    offset_range: OffsetRange | None = partition.value
    if offset_range is None:
        return
    yield from read_range(
        options.bootstrap,
        offset_range,
        to_arrow_schema(schema, timezone="UTC"),
        buffer_bytes=options.buffer_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
        skip_damaged=options.skip_damaged,
    )
