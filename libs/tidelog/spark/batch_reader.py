"""`spark.read`: reads the offsets between two boundaries that are fixed when a query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog.model import NO_OFFSET
from tidelog.spark import boundaries
from tidelog.spark.boundary_epochs import with_boundary_epochs
from tidelog.spark.cluster_lookups import ClusterLookups, new_lookups
from tidelog.spark.filters import Narrowed
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import OffsetRange, split
from tidelog.spark.range_reader import range_partitions, read_partition
from tidelog.spark.stream_offsets import ReadTo


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowed = Narrowed()

    def __getattribute__(self, name: str) -> Any:
        # Spark rejects a reader with pushFilters while filter pushdown is disabled
        # (spark.sql.python.filterPushdown.enabled, off by default). It detects the method by
        # comparing its function with that of the base class.
        found = super().__getattribute__(name)
        return _Pushed(found) if name == "pushFilters" else found

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return self._narrowed.apply(filters)

    def partitions(self) -> list[InputPartition]:
        """Raises `OptionError` and other `TidelogError`s."""
        with new_lookups(self._options.bootstrap) as lookups:
            return range_partitions(lookups.ask(self._parts))

    async def _parts(self, lookups: ClusterLookups) -> list[OffsetRange]:
        ranges = await plan_ranges(self._options, self._narrowed, lookups)
        return await with_boundary_epochs(split(ranges, *self._options.split), lookups)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)


class _Pushed:
    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Any) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        pushed: Iterable[Filter] = self._push(filters)
        return pushed


async def plan_ranges(
    options: ReadOptions, narrowed: Narrowed, lookups: ClusterLookups
) -> list[OffsetRange]:
    now = await lookups.now(options.topics, {})
    named = boundaries.partitions_of(now)
    start_times = await lookups.at_times(boundaries.requested_times(options.starting, named))
    end_times = await lookups.at_times(boundaries.requested_times(options.ending, named))
    first = boundaries.starts(options, now, start_times)
    end = boundaries.ends(options, now, end_times)
    boundaries.check_order(options, first, end)
    read = [partition for partition in named if narrowed.reads(partition)]
    if narrowed.time_ms is not None:
        for partition, offset in (await lookups.at_times({narrowed.time_ms: read})).items():
            # If no record is late enough, there is nothing to read.
            least = end[partition] if offset == NO_OFFSET else offset
            first[partition] = max(first[partition], least)
    return [
        OffsetRange(
            partition,
            now[partition.topic].topic_id,
            now[partition.topic].create_revision,
            ReadTo(max(first[partition], narrowed.first_offset)),
            ReadTo(min(end[partition], narrowed.end_offset or end[partition])),
        )
        for partition in read
        if narrowed.end_offset != 0
    ]
