"""Writers for `df.write` and `df.writeStream`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.client.background import BackgroundClient
from tidelog.errors import ErrorCode, TidelogError
from tidelog.spark.options import WriteOptions
from tidelog.spark.record_sink import RecordSink, WriteCounts
from tidelog.spark.sink_positions import BATCH_ID, QUERY_ID, SinkTask


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    counts: WriteCounts


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch. A repeated task writes its records again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        return _write(self._options, None, _context().partitionId(), iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream. A repeated micro-batch writes nothing twice (`sink_positions`)."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        task = sink_task(_context())
        return _write(self._options, task, task.partition, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: all records were committed when their tasks ended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: written records stay, and a repeated micro-batch leaves them out."""


def sink_task(context: TaskContext) -> SinkTask:
    """Raises `TidelogError` (INTERNAL) if Spark does not report what the task writes."""
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if not query_id or batch_id is None:
        raise TidelogError(
            ErrorCode.INTERNAL,
            f"this Spark does not pass tasks their query ({QUERY_ID} is {query_id!r}) and "
            f"micro-batch ({BATCH_ID} is {batch_id!r}), without which nothing can be written once; "
            "use PySpark 4.2",
        )
    return SinkTask(query_id, int(batch_id), context.partitionId())


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "writers write in tasks"
    return context


def _write(
    options: WriteOptions,
    task: SinkTask | None,
    task_partition: int,
    batches: Iterator[pa.RecordBatch],
) -> TaskCommit:
    with BackgroundClient(
        lambda: RecordSink(
            options.bootstrap,
            topic=options.topic,
            codec=options.codec,
            task=task,
            task_partition=task_partition,
        )
    ) as sink:
        for rows in batches:
            _send(sink, rows)
        return TaskCommit(sink.ask(lambda one: one.finish()))


def _send(sink: BackgroundClient[RecordSink], rows: pa.RecordBatch) -> None:
    sink.ask(lambda one: one.write(rows))
