"""`spark.readStream`: admission control, `Trigger.AvailableNow`, and tasks that read ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.client.background import BackgroundClient
from tidelog.spark.cluster_lookups import ClusterLookups
from tidelog.spark.options import ReadOptions
from tidelog.spark.range_reader import range_partitions, read_partition
from tidelog.spark.stream_offsets import from_value, split_of, to_value
from tidelog.spark.stream_planner import StreamPlanner


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. It lives in a process of the driver as long as its query; copies of it read
    in executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._started: BackgroundClient[StreamPlanner] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_started": None}

    @property
    def _planner(self) -> BackgroundClient[StreamPlanner]:
        if self._started is None:
            options = self._options
            self._started = BackgroundClient(
                lambda: StreamPlanner(options, ClusterLookups(options.bootstrap))
            )
        return self._started

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_value(self._planner.ask(lambda planner: planner.initial()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        read = from_value(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._planner.ask(lambda planner: planner.next_end(read, most))
        # If there is nothing new, the planned offsets stay as they are.
        return start if end == read else to_value(end, self._options.split)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        async def latest(planner: StreamPlanner) -> dict[str, Any]:
            return to_value(planner.latest)

        return self._planner.ask(latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        async def bound(planner: StreamPlanner) -> None:
            planner.bound()

        self._planner.ask(bound)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last, split = from_value(start), from_value(end), split_of(end)
        return range_partitions(
            self._planner.ask(lambda planner: planner.ranges(first, last, split))
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: Spark's checkpoint is the only state."""

    def stop(self) -> None:
        if self._started is not None:
            self._started.close()
            self._started = None
