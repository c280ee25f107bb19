"""Removes old hours of an archive, in one commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tidelog.client.clock import Clock
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.core.commits import Commit, RemovedRows
from tidelog_pipeline.archive.core.hours import ArchivedHour, before_damaged
from tidelog_pipeline.archive.core.spans import LogId, united
from tidelog_pipeline.archive.file_checks import absent_or_cut, find_damaged
from tidelog_pipeline.archive.record_locations import LOG_COLUMNS, present_offsets, read_locations
from tidelog_pipeline.session import QUERY_ERRORS


class Expired(NamedTuple):
    """The result of an expiry. `hours`: the removed ones; `damaged`: faults of files, by path."""

    hours: list[ArchivedHour]
    damaged: dict[str, str]


def expire(
    spark: SparkSession, log: ArchiveLog, hours: list[ArchivedHour], before_ms: int, clock: Clock
) -> Expired:
    """Removes the hours, up to the first one with a damaged file.

    The number of rows in a damaged file is unknown until it is repaired. Rows are counted
    before their files are removed.
    """
    root = log.directory.root
    wrong = absent_or_cut(root, (file for hour in hours for file in hour.files))
    chosen, horizon_ms = before_damaged(hours, wrong, before_ms)
    try:
        expired = _counted(spark, log, chosen)
    except QUERY_ERRORS:
        wrong |= find_damaged(spark, root, [file for hour in chosen for file in hour.files])
        chosen, horizon_ms = before_damaged(hours, wrong, before_ms)
        expired = _counted(spark, log, chosen)
    if chosen or horizon_ms > log.state.expired_before_ms:
        log.commit(
            Commit(
                log.stage(),
                clock.wall_ms(),
                removed=tuple(file.path for hour in chosen for file in hour.files),
                expired=tuple(expired),
                expired_before_ms=horizon_ms,
            )
        )
    return Expired(chosen, wrong)


def _counted(
    spark: SparkSession, log: ArchiveLog, hours: Iterable[ArchivedHour]
) -> list[RemovedRows]:
    rows = read_locations(
        spark, log.directory.root, (file.path for hour in hours for file in hour.files)
    )
    groups = rows.groupBy(*LOG_COLUMNS).agg(sf.count("*"))
    counts = {LogId(*named): count for *named, count in groups.collect()}
    present = present_offsets(rows, counts)
    return [
        RemovedRows(one, count, united(s for spans in present[one].values() for s in spans))
        for one, count in counts.items()
    ]
