"""Reads the contents of an incident page from the tables."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from tidelog.state_changes.event import Kind
from tidelog_pipeline.state_changes.core.incident import (
    BUCKETS,
    FAMILIES,
    MARKS,
    Incident,
    LimitedRows,
    Row,
    Window,
)
from tidelog_pipeline.state_changes.tables import (
    Tables,
    availability,
    durations,
    elections_by_cause,
    isr_churn,
)

# Limits of the lists; the page also shows how many more there are.
MAX_PARTITION_ROWS = 30
MAX_MARKS = 200
MAX_ROWS = 30
MAX_INTERVALS = 2_000
MAX_STAGES = 60


def collect_incident(tables: Tables, begin_ms: int | None, end_ms: int | None) -> Incident:
    """Returns the incident between two times. None: the time of the first or of the last event."""
    since_ms, until_ms = tables.observed_period
    window = Window(
        since_ms if begin_ms is None else begin_ms, until_ms + 1 if end_ms is None else end_ms
    )
    frames = tables.frames
    changes = _between(frames["changes"], "began_at", window)
    length = F.unix_millis("end_at") - F.unix_millis("begin_at")
    intervals = _clip(frames["intervals"], window).withColumn("length_ms", length)
    intervals = intervals.where("length_ms > 0")
    observed = _clip(frames["observed"], window).where("begin_at <= end_at")
    troubled = _limited(
        availability(observed, intervals).where("without_leader_ms > 0 or under_min_isr_ms > 0"),
        MAX_PARTITION_ROWS,
    )
    failovers = _limited(
        _between(frames["failovers"], "began_at", window).orderBy(F.desc("total_ms")), MAX_ROWS
    )
    unfinished = _between(frames["unfinished"], "began_at", window).where("overtaken_by = ''")
    return Incident(
        window,
        tables.lines,
        _rows(_of_partitions(intervals, troubled.rows).limit(MAX_INTERVALS)),
        troubled,
        _limited(changes.where(F.col("kind").isin(_values(MARKS))).orderBy("began_at"), MAX_MARKS),
        _families(changes, window),
        _limited(durations(changes).orderBy(F.desc("changes")), MAX_ROWS),
        _limited(elections_by_cause(_between(frames["elections"], "done_at", window)), MAX_ROWS),
        _limited(isr_churn(_between(frames["isr_changes"], "done_at", window)), MAX_ROWS),
        _limited(unfinished.orderBy("began_at"), MAX_ROWS),
        failovers,
        _stages_of(frames["stages"], failovers.rows),
    )


def _between(frame: DataFrame, column: str, window: Window) -> DataFrame:
    at = F.unix_millis(column)
    return frame.where((at >= window.begin_ms) & (at < window.end_ms))


def _clip(frame: DataFrame, window: Window) -> DataFrame:
    """Limits the times from `begin_at` to `end_at` to the window; they may become negative."""
    begin = F.greatest(F.unix_millis("begin_at"), F.lit(window.begin_ms))
    end = F.least(F.unix_millis("end_at"), F.lit(window.end_ms))
    return frame.withColumns(
        {"begin_at": F.timestamp_millis(begin), "end_at": F.timestamp_millis(end)}
    )


def _of_partitions(intervals: DataFrame, partitions: Sequence[Row]) -> DataFrame:
    chosen = F.lit(False)
    for row in partitions:
        is_it = (F.col("topic") == row["topic"]) & (F.col("partition") == row["partition"])
        chosen = chosen | is_it
    return intervals.where(chosen).orderBy("begin_at")


def _families(changes: DataFrame, window: Window) -> dict[str, list[int]]:
    since = F.unix_millis("began_at") - F.lit(window.begin_ms)
    bucket = F.floor(since / F.lit(window.bucket_ms)).cast("int")
    counted = changes.groupBy("kind", bucket.alias("bucket")).count().collect()
    series = {name: [0] * BUCKETS for name in FAMILIES}
    for row in counted:
        for name, kinds in FAMILIES.items():
            if row["kind"] in _values(kinds):
                series[name][row["bucket"]] += row["count"]
    return series


def _stages_of(stages: DataFrame, failovers: Sequence[Row]) -> Sequence[Row]:
    if not failovers:
        return []
    worst = failovers[0]
    is_it = [F.col(name) == worst[name] for name in ("change_id", "topic", "partition")]
    return _rows(stages.where(is_it[0] & is_it[1] & is_it[2]).orderBy("told_at").limit(MAX_STAGES))


def _values(kinds: Sequence[Kind]) -> list[str]:
    return [kind.value for kind in kinds]


def _limited(frame: DataFrame, limit: int) -> LimitedRows:
    return LimitedRows(_rows(frame.limit(limit)), frame.count())


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [
        {name: _plain(value) for name, value in row.asDict().items()} for row in frame.collect()
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        # Spark returns them in the local time zone.
        return round(value.timestamp() * 1000)
    return value
