"""The data source, which waits at points of its writing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bench.spark_kills.points import Holds, Point
from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.sink_positions import BATCH_ID

NAME = "tidelog-held"
# The option that names the directory of the `Holds`; all others are those of Tidelog's data source.
HOLDS = "holds"


class HeldDataSource(TidelogDataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> HeldWriter:  # type: ignore[override]  # noqa: N802
        plain = TidelogDataSource({k: v for k, v in self.options.items() if k != HOLDS})
        return HeldWriter(plain.streamWriter(schema, overwrite), Path(self.options[HOLDS]))


class HeldWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter, holds: Path) -> None:
        self._writer = writer
        self._holds = Holds(holds)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty(BATCH_ID) or -1)
        message = self._writer.write(self._held_midway(iterator, batch_id))
        self._holds.reach(Point.AFTER_WRITE, batch_id)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.commit(messages, batchId)
        self._holds.reach(Point.AFTER_COMMIT, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.abort(messages, batchId)

    def _held_midway(
        self, batches: Iterator[pa.RecordBatch], batch_id: int
    ) -> Iterator[pa.RecordBatch]:
        given = 0
        for rows in batches:
            if given:
                # Records that were passed before are accepted, and in flight.
                self._holds.reach(Point.MID_TASK, batch_id)
            yield rows
            given += rows.num_rows
