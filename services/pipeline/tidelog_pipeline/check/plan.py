"""The check as a Spark plan, which distributes rows to stages. The stages decide.

lines ── operations ─┬─ sends and polled records ──── by value ─┬─ sends ── by sender
                     │                                          ├─ sends ──┐
                     │                                          │          by offset
                     └─ polls, readings, digests ── by reader ──┴─ jumps ──┘
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from tidelog.history import (
    UNREADABLE_VALUE,
    HistoryError,
    LossMark,
    Nemesis,
    Outcome,
    Report,
)
from tidelog.history.history_format import decode_operation
from tidelog.history.loss_marks import LossMarks
from tidelog.history.report import MAX_NEMESIS_EVENTS, WriteTiming
from tidelog.model import TopicPartition
from tidelog_pipeline.check.decoding import count_range_lines, decode_rows
from tidelog_pipeline.check.history_files import ByteRange, find_files, ranges_of
from tidelog_pipeline.check.stages import stage_tables
from tidelog_pipeline.check.stages.log_stage import (
    FACTS_OFFSET,
    FACTS_RANK,
    JUMP_RANK,
    RECORD_RANK,
    SEND_RANK,
    log_stage,
)
from tidelog_pipeline.check.stages.reader_stage import reader_stage
from tidelog_pipeline.check.stages.sender_stage import sender_stage
from tidelog_pipeline.check.stages.stage_tables import Stage
from tidelog_pipeline.check.stages.task_verdict import Verdict, merge_verdicts
from tidelog_pipeline.check.stages.timing_stage import (
    overall_stage,
    partition_stage,
    timing_of,
    windows_of,
)
from tidelog_pipeline.check.stages.value_stage import Marks, value_stage
from tidelog_pipeline.columns import Columns, Row

# Bytes of the history whose rows go to one task of a shuffle.
TASK_BYTES = 32 << 20


class CheckResult(NamedTuple):
    report: Report
    timing: WriteTiming
    worker_peak_kb: int


class HistoryListing(NamedTuple):
    """Small parts of a history, whatever its size.

    - `events`: the first of `event_count` events.
    """

    operations: int
    partitions: int
    marks: Marks
    events: list[tuple[int, Nemesis]]
    event_count: int


def check(spark: SparkSession, location: str, range_bytes: int) -> CheckResult:
    """Checks a history.

    Raises `HistoryNotFoundError`, and `HistoryError` for a history that is malformed or
    contradicts itself, as the check on one machine does.
    """
    ranges = ranges_of(find_files(location), range_bytes)
    with ExitStack() as kept:
        operations = kept.enter_context(_persisted(_operations(spark, ranges)))
        undecoded = _first_undecoded(operations)
        if undecoded is not None:
            # An earlier line may contradict those before it, and would be reported first.
            operations = operations.where(F.col("line") < undecoded[0])
        listing = _listing(operations)
        width = _width(spark, ranges)
        narrow = max(1, min(width, listing.partitions))
        values = _values(operations)
        sends = kept.enter_context(_persisted(_staged(values, value_stage(listing.marks), width)))
        readers = operations.where("kind = 'reader'")
        read = kept.enter_context(_persisted(_staged(readers, reader_stage(listing.marks), narrow)))
        acknowledged = sends.where(F.col("outcome") == Outcome.OK.value)
        by_offset = _staged(_log(operations, acknowledged, read), log_stage(listing.marks), narrow)
        by_sender = _staged(acknowledged, sender_stage(listing.marks), narrow)
        verdict = _verdict(sends, read, by_offset, by_sender)
        _raise_first(location, undecoded, verdict.error)
        report = verdict.report
        report.operations, report.partitions = listing.operations, listing.partitions
        report.nemesis, report.nemesis_count = listing.events, listing.event_count
        timing = _timing(acknowledged, report, narrow)
    return CheckResult(report, timing, verdict.worker_peak_kb)


def _raise_first(
    location: str, undecoded: tuple[int, str] | None, contradiction: tuple[int, str] | None
) -> None:
    """Raises the first error. A contradiction, if there is one, precedes a malformed line."""
    if contradiction is not None:
        raise HistoryError(contradiction[1])
    if undecoded is not None:
        line, error = undecoded
        raise HistoryError(f"{location}, line {line}: {error}")


def _operations(spark: SparkSession, ranges: list[ByteRange]) -> DataFrame:
    rows = [(*span, None) for span in ranges]
    counts = stage_tables.LINE_COUNTS.map(_spread(spark, rows), count_range_lines).collect()
    lines = {(row["uri"], row["start"]): row["lines"] for row in counts}
    firsts = accumulate((lines[span.uri, span.start] for span in ranges), initial=1)
    numbered = [(*span, first) for span, first in zip(ranges, firsts, strict=False)]
    return stage_tables.OPERATIONS.map(_spread(spark, numbered), decode_rows)


def _spread(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Distributes rows, one to a task."""
    return spark.createDataFrame(
        spark.sparkContext.parallelize(rows, len(rows)), stage_tables.RANGES.ddl
    )


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Keeps a frame on the executors' disks, because several stages read it."""
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def _first_undecoded(operations: DataFrame) -> tuple[int, str] | None:
    row = operations.where("kind = 'error'").orderBy("line").select("line", "error").first()
    return None if row is None else (row["line"], row["error"])


def _listing(operations: DataFrame) -> HistoryListing:
    kinds = {row["kind"]: row["count"] for row in operations.groupBy("kind").count().collect()}
    kinds.pop("error", None)
    named = operations.where("partition >= 0").select("topic", "partition")
    marks: dict[TopicPartition, LossMarks] = {}
    for _, mark in _decoded_of(operations, "mark"):
        assert isinstance(mark, LossMark)
        name = TopicPartition(mark.topic, mark.partition)
        marks.setdefault(name, LossMarks()).add(mark)
    events = list(_decoded_of(operations, "nemesis", MAX_NEMESIS_EVENTS))
    return HistoryListing(
        sum(kinds.values()),
        named.distinct().count(),
        marks,
        [(line, event) for line, event in events if isinstance(event, Nemesis)],
        kinds.get("nemesis", 0),
    )


def _decoded_of(
    operations: DataFrame, kind: str, limit: int | None = None
) -> Iterator[tuple[int, object]]:
    chosen = operations.where(F.col("kind") == kind).orderBy("line").select("line", "raw")
    for row in (chosen if limit is None else chosen.limit(limit)).collect():
        yield row["line"], decode_operation(bytes(row["raw"]))


def _width(spark: SparkSession, ranges: list[ByteRange]) -> int:
    size = sum(span.end - span.start for span in ranges)
    return max(spark.sparkContext.defaultParallelism, math.ceil(size / TASK_BYTES))


def _values(operations: DataFrame) -> DataFrame:
    halves = operations.where("kind in ('invoked', 'ended')").withColumn("index", F.lit(0))
    polled = _polled(operations).where(F.col("value") != UNREADABLE_VALUE)
    return _shaped(halves, stage_tables.VALUES).union(_shaped(polled, stage_tables.VALUES))


def _polled(operations: DataFrame) -> DataFrame:
    """Returns a row for each polled record."""
    records = F.posexplode(F.arrays_zip("offsets", "values", "leader_epochs"))
    kept = ("line", "time_ms", "client", "topic", "partition", "final")
    return (
        operations.where("offsets is not null")
        .select(*kept, records.alias("index", "record"))
        .select(
            *kept,
            F.col("index").cast("bigint").alias("index"),
            F.lit("polled").alias("kind"),
            F.col("record.offsets").alias("offset"),
            F.col("record.values").alias("value"),
            F.col("record.leader_epochs").alias("leader_epoch"),
        )
    )


def _log(operations: DataFrame, acknowledged: DataFrame, read: DataFrame) -> DataFrame:
    facts = read.where("kind = 'facts'").withColumn("offset", F.lit(FACTS_OFFSET))
    jumps = read.where("kind = 'jump'").withColumn("offset", F.col("first"))
    sends = acknowledged.withColumns(
        {
            "line": F.col("ended_line"),
            "time_ms": F.col("ended_ms"),
            "flag": F.col("is_polled"),
        }
    )
    ranked = (
        (facts, FACTS_RANK),
        (jumps, JUMP_RANK),
        (_polled(operations).withColumn("flag", F.col("final")), RECORD_RANK),
        (sends, SEND_RANK),
    )
    shaped = [
        _shaped(frame.withColumn("rank", F.lit(rank)), stage_tables.LOG) for frame, rank in ranked
    ]
    first, *rest = shaped
    for frame in rest:
        first = first.union(frame)
    return first


def _shaped(frame: DataFrame, columns: Columns) -> DataFrame:
    """Returns these columns with these types; null for columns that the frame lacks."""
    return frame.select(
        *(
            (F.col(name) if name in frame.columns else F.lit(None)).cast(kind).alias(name)
            for name, kind in columns.types.items()
        )
    )


def _staged(frame: DataFrame, stage: Stage, tasks: int) -> DataFrame:
    chosen = frame.select(*stage.input.names)
    if stage.group_by:
        grouped = chosen.repartition(tasks, *stage.group_by)
    else:
        grouped = chosen.repartition(1)
    return stage.output.map(grouped.sortWithinPartitions(*stage.order_by), stage.run)


def _verdict(*staged: DataFrame) -> Verdict:
    parts: list[Row] = []
    for frame in staged:
        reports = frame.where("report is not null").select(*stage_tables.VERDICTS.names)
        parts += [tuple(row) for row in reports.collect()]
    return merge_verdicts(parts)


def _timing(acknowledged: DataFrame, report: Report, tasks: int) -> WriteTiming:
    times = acknowledged.select("topic", "partition", F.col("ended_ms").alias("time_ms"))
    windows = windows_of(report.nemesis)
    edges = sorted(time for time in (report.first_send_ms, report.last_send_ms) if time is not None)
    everywhere = _shaped(times.select("time_ms").distinct(), stage_tables.SUCCESS_TIMES)
    overall = _staged(everywhere, overall_stage(windows, edges), 1).collect()
    if not windows:
        return timing_of([], overall, [])
    worst = _staged(times.distinct(), partition_stage(windows), tasks).collect()
    return timing_of(report.nemesis, overall, worst)
