"""Writes an hour anew, and lets its new files take the place of the old."""

from __future__ import annotations

import logging
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidelog.client.clock import Clock
from tidelog.errors import ErrorCode, TidelogError
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.commits import AddedFile, Commit
from tidelog_pipeline.archive.compaction import HourToCompact

_log = logging.getLogger(__name__)


class _Figures(NamedTuple):
    rows: int
    offsets: int | None
    epochs: int | None


def compact(spark: SparkSession, log: ArchiveLog, hour: HourToCompact, clock: Clock) -> bool:
    """False, with a warning: the hour has files that the archive does not know. Raises
    `TidelogError` where the new files have not what the old ones have."""
    known = [file.path for file in hour.files]
    found = log.directory.files(hour.path)
    if found != known:
        strange = sorted(set(found) ^ set(known))
        _log.warning("%s is not compacted: %s is not as the archive left it", hour.path, strange[0])
        return False
    staging = log.stage()
    location = f"{staging}/{hour.path}"
    old = spark.read.parquet(*(str(log.directory.at(path)) for path in known))
    _in_order(old, hour.file_count).write.parquet(str(log.directory.at(location)))
    log.directory.remove(f"{location}/_SUCCESS")
    new = spark.read.schema(old.schema).parquet(str(log.directory.at(location)))
    _check(hour, _figures(old), _figures(new))
    log.commit(
        Commit(staging, clock.wall_ms(), tuple(_added(log, staging, new)), replaces=hour.path)
    )
    return True


def _in_order(frame: DataFrame, file_count: int) -> DataFrame:
    order = ("partition", "offset", "leader_epoch")
    if file_count == 1:
        return frame.coalesce(1).sortWithinPartitions(*order)
    return frame.repartitionByRange(file_count, *order).sortWithinPartitions(*order)


def _added(log: ArchiveLog, staging: str, written: DataFrame) -> list[AddedFile]:
    rows = written.groupBy(sf.col("_metadata.file_name").alias("name")).count().collect()
    hour = log.directory.files(staging)
    named = {path.rpartition("/")[2]: path.removeprefix(f"{staging}/") for path in hour}
    return [
        AddedFile(
            named[row["name"]], row["count"], log.directory.size(f"{staging}/{named[row['name']]}")
        )
        for row in rows
    ]


def _figures(frame: DataFrame) -> _Figures:
    found = frame.agg(sf.count("*"), sf.sum("offset"), sf.sum("leader_epoch")).first()
    assert found is not None, "an aggregate has a row"
    return _Figures(*found)


def _check(hour: HourToCompact, old: _Figures, new: _Figures) -> None:
    if old != new or new.rows != hour.rows:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{hour.path} is not compacted: it has {hour.rows} rows by the archive's commits, "
            f"{old.rows} by its files, and {new.rows} when written anew; see `archive reconcile`",
        )
