"""The tables as Spark frames: distribution of events to rows, and aggregates of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from tidelog.spark import register
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC, from_value
from tidelog_pipeline.job_command import JobError
from tidelog_pipeline.state_changes.core import event_rows
from tidelog_pipeline.state_changes.core.availability import Trouble
from tidelog_pipeline.state_changes.core.departures import (
    DEPARTURE_KINDS,
    Departures,
    departures_in,
)
from tidelog_pipeline.state_changes.core.incarnations import ObservedPeriod
from tidelog_pipeline.state_changes.core.table_rows import SCHEMAS, Lines

EVENTS_PER_TASK = 50_000
_TIME = "_at"
_PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


class NoEventsError(JobError):
    """There are no state changes; the message says where they were expected."""


class Tables(NamedTuple):
    """The tables of a job.

    - `frames`: by name.
    - `kept`: frames that are on the executors' disks until `release`.
    """

    frames: Mapping[str, DataFrame]
    observed_period: ObservedPeriod
    lines: Lines
    kept: tuple[DataFrame, ...]

    def release(self) -> None:
        for frame in self.kept:
            frame.unpersist()


def read_logs(spark: SparkSession, paths: list[str]) -> DataFrame:
    lines = spark.read.text(paths, lineSep="\n").select(F.col("value").cast("binary").alias("raw"))
    return event_rows.EVENTS.map(lines, event_rows.from_log_lines)


def read_topic(spark: SparkSession, bootstrap: list[str]) -> DataFrame:
    register(spark)
    options = {"bootstrap.servers": ",".join(bootstrap), "subscribe": STATE_CHANGES_TOPIC}
    values = spark.read.format("tidelog").options(**options, columns="value").load()
    raw = values.select(F.col("value").alias("raw"))
    return event_rows.EVENTS.map(raw, event_rows.from_topic_values)


def tables_of(read: DataFrame) -> Tables:
    """Builds the tables from parsed events. Raises `NoEventsError`."""
    read.persist(StorageLevel.DISK_ONLY)
    lines = _lines(read)
    events = read.where("topic is not null")
    observed_period, count = _observed_period(events)
    if observed_period is None:
        read.unpersist()
        raise NoEventsError(
            f"none of {lines.read:,} lines is a state change ({lines.malformed:,} of them are "
            "truncated or malformed)"
        )
    tasks = max(read.sparkSession.sparkContext.defaultParallelism, count // EVENTS_PER_TASK)
    grouped = (
        events.select(*event_rows.GROUPED.names)
        .repartition(tasks, "topic", "partition")
        .sortWithinPartitions("topic", "partition")
    )
    convert = event_rows.table_rows(_departures(events), observed_period)
    rows = event_rows.TABLE_ROWS.map(grouped, convert).persist(StorageLevel.DISK_ONLY)
    frames = {name: _table(rows, name) for name in SCHEMAS}
    return Tables(frames | _sums(frames), observed_period, lines, (read, rows))


def _lines(read: DataFrame) -> Lines:
    names = ("lines", "skipped", "malformed")
    sums = read.where("lines is not null").agg(*(F.sum(name) for name in names)).first()
    assert sums is not None
    return Lines(*(value or 0 for value in sums))


def _observed_period(events: DataFrame) -> tuple[ObservedPeriod | None, int]:
    first = events.agg(F.min("time_ms"), F.max("time_ms"), F.count("time_ms")).first()
    assert first is not None
    since_ms, until_ms, count = first
    return (ObservedPeriod(since_ms, until_ms) if count else None), count


def _departures(events: DataFrame) -> Departures:
    kinds = [kind.value for kind in DEPARTURE_KINDS]
    rows = events.where(F.col("kind").isin(kinds)).select("raw").collect()
    return departures_in(from_value(bytes(row["raw"])) for row in rows)


def _table(rows: DataFrame, name: str) -> DataFrame:
    parsed = rows.where(F.col("table") == name).select(
        F.from_json("row", SCHEMAS[name]).alias("row")
    )
    flat = parsed.select("row.*")
    return flat.select(
        *(
            F.timestamp_millis(F.col(column)).alias(column)
            if column.endswith(_TIME)
            else F.col(column)
            for column in flat.columns
        )
    )


def _sums(frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    return {
        "durations": durations(frames["changes"]),
        "availability": availability(frames["observed"], frames["intervals"]),
        "isr_churn": isr_churn(frames["isr_changes"]),
        "elections_by_cause": elections_by_cause(frames["elections"]),
    }


def durations(changes: DataFrame) -> DataFrame:
    """Returns how long changes took until all replicas that they concern had completed them."""
    return (
        changes.groupBy("kind", "cause")
        .agg(
            F.count("*").alias("changes"),
            *(
                F.percentile("took_ms", F.lit(part)).alias(name)
                for name, part in _PERCENTILES.items()
            ),
            F.max("took_ms").alias("max_ms"),
            F.count_if("is_failed").alias("failed"),
            F.count_if("is_unfinished").alias("unfinished"),
        )
        .orderBy("kind", "cause")
    )


def availability(observed: DataFrame, intervals: DataFrame) -> DataFrame:
    """Returns the availability of each partition name, over all its incarnations.

    Times outside of an incarnation do not count. `under_min_isr_ms` is null if no min ISR is
    reported.
    """
    begin, end = F.unix_millis("begin_at"), F.unix_millis("end_at")
    seen = observed.groupBy("topic", "partition").agg(
        F.sum(end - begin).alias("observed_ms"),
        F.max_by("min_isr", F.when(F.col("min_isr").isNotNull(), end)).alias("min_isr"),
    )
    no_leader = F.col("trouble") == Trouble.NO_LEADER.value
    length = F.col("length_ms")
    troubled = intervals.groupBy("topic", "partition").agg(
        F.sum(F.when(no_leader, length)).alias("without_leader"),
        F.max(F.when(no_leader, length)).alias("longest"),
        F.count_if(no_leader).alias("losses"),
        F.sum(F.when(~no_leader, length)).alias("under"),
    )
    return (
        seen.join(troubled, ["topic", "partition"], "left")
        .select(
            "topic",
            "partition",
            "observed_ms",
            F.coalesce("without_leader", F.lit(0)).alias("without_leader_ms"),
            F.coalesce("longest", F.lit(0)).alias("longest_without_leader_ms"),
            F.coalesce("losses", F.lit(0)).alias("times_without_leader"),
            "min_isr",
            F.when(F.col("min_isr").isNotNull(), F.coalesce("under", F.lit(0))).alias(
                "under_min_isr_ms"
            ),
        )
        .orderBy(F.desc("without_leader_ms"), "topic", "partition")
    )


def isr_churn(isr_changes: DataFrame) -> DataFrame:
    return (
        isr_changes.groupBy("topic", "partition", "broker")
        .agg(
            F.count_if(~F.col("joined")).alias("left"),
            F.count_if("joined").alias("joined"),
        )
        .orderBy(F.desc("left"), "topic", "partition", "broker")
    )


def elections_by_cause(elections: DataFrame) -> DataFrame:
    return (
        elections.groupBy("kind", "cause")
        .agg(
            F.count("*").alias("elections"),
            F.countDistinct("topic", "partition").alias("partitions"),
        )
        .orderBy(F.desc("elections"), "kind", "cause")
    )
