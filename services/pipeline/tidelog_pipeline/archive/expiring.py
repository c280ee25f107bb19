"""Removes old hours of an archive, in one commit."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tidelog.client.clock import Clock
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.commits import Commit, GoneRows
from tidelog_pipeline.archive.expiry import ExpiredHour
from tidelog_pipeline.archive.file_checks import absent_or_cut, damaged
from tidelog_pipeline.archive.places import LOG_COLUMNS, places, present_offsets
from tidelog_pipeline.archive.spans import LogId, united
from tidelog_pipeline.session import QUERY_ERRORS


def expire(
    spark: SparkSession, log: ArchiveLog, hours: list[ExpiredHour], before_ms: int, clock: Clock
) -> dict[str, str]:
    """Returns what is wrong with files, by path: their hours are left, since nobody knows how many
    rows of which partition they had. Rows are counted before their files are removed."""
    root = log.directory.root
    wrong = absent_or_cut(root, (file for hour in hours for file in hour.files))
    try:
        expired = _counted(spark, log, _sound(hours, wrong))
    except QUERY_ERRORS:
        wrong |= damaged(
            spark, root, (file for hour in _sound(hours, wrong) for file in hour.files)
        )
        expired = _counted(spark, log, _sound(hours, wrong))
    removed = tuple(file.path for hour in _sound(hours, wrong) for file in hour.files)
    if removed or before_ms > log.state.expired_before_ms:
        log.commit(
            Commit(
                log.stage(),
                clock.wall_ms(),
                removed=removed,
                expired=tuple(expired),
                expired_before_ms=before_ms,
            )
        )
    return wrong


def _sound(hours: Iterable[ExpiredHour], wrong: dict[str, str]) -> list[ExpiredHour]:
    return [hour for hour in hours if not any(file.path in wrong for file in hour.files)]


def _counted(spark: SparkSession, log: ArchiveLog, hours: Iterable[ExpiredHour]) -> list[GoneRows]:
    rows = places(spark, log.directory.root, (file.path for hour in hours for file in hour.files))
    groups = rows.groupBy(*LOG_COLUMNS).agg(sf.count("*"))
    counts = {LogId(*named): count for *named, count in groups.collect()}
    present = present_offsets(rows, counts)
    return [
        GoneRows(one, count, united(s for spans in present[one].values() for s in spans))
        for one, count in counts.items()
    ]
