"""Writes the rows of an hour to few large files, which replace the old ones."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidelog.client.clock import Clock
from tidelog.errors import ErrorCode, TidelogError
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.core.commits import AddedFile, Commit
from tidelog_pipeline.archive.core.hours import ArchivedHour
from tidelog_pipeline.archive.file_checks import damage, describe_files, map_files
from tidelog_pipeline.job_command import first_line
from tidelog_pipeline.session import to_read
from tidelog_pipeline.storage.directory import Directory


class NotCompacted(NamedTuple):
    """Why an hour stays as it is.

    - `is_fault`: whether the archive has a fault. Otherwise the file system denies an answer now,
      such as for a lack of file descriptors.
    """

    why: str
    is_fault: bool


class _HourTotals(NamedTuple):
    rows: int
    offsets: int | None
    epochs: int | None


def compact(
    spark: SparkSession, log: ArchiveLog, hour: ArchivedHour, file_count: int, clock: Clock
) -> NotCompacted | None:
    """Compacts an hour to this number of files. Returns None, or why the hour stays as it is.

    An hour stays as it is if it has files that are lost, damaged, not named by a commit, or that
    cannot be read now: compaction would give damaged content a new checksum. Raises `TidelogError`
    if the content of the new files differs from that of the old ones.
    """
    problem = _problem_of_hour(spark, log.directory, hour)
    if problem is not None:
        return problem
    known = [file.path for file in hour.files]
    staging = log.stage()
    location = f"{staging}/{hour.path}"
    old = spark.read.parquet(*(to_read(log.directory.at(path)) for path in known))
    _in_order(old, file_count).write.parquet(location)
    log.directory.remove(f"{location}/_SUCCESS")
    new = spark.read.schema(old.schema).parquet(to_read(location))
    _check(hour, _totals(old), _totals(new))
    added = tuple(_added(spark, staging, new))
    log.commit(Commit(staging, clock.wall_ms(), added, replaces=hour.path))
    return None


def _problem_of_hour(
    spark: SparkSession, directory: Directory, hour: ArchivedHour
) -> NotCompacted | None:
    try:
        there = directory.files(hour.path)
    except OSError as error:
        return _denied(hour.path, error)
    unknown = sorted(set(there) - {file.path for file in hour.files})
    if unknown:
        return NotCompacted(f"no commit names {unknown[0]}", is_fault=True)
    root = directory.root
    found = map_files(spark, lambda file: _problem_of_file(root, file), hour.files)
    # Faults come first, since only an action of people removes them.
    return min(filter(None, found), key=lambda one: (not one.is_fault, one.why), default=None)


def _problem_of_file(root: Path, file: AddedFile) -> NotCompacted | None:
    try:
        why = damage(root, file)
    except OSError as error:
        return _denied(file.path, error)
    return NotCompacted(f"{file.path} is damaged: {why}", is_fault=True) if why else None


def _denied(path: str, error: OSError) -> NotCompacted:
    return NotCompacted(f"{path}: it cannot be read now ({first_line(error)})", is_fault=False)


def _in_order(frame: DataFrame, file_count: int) -> DataFrame:
    order = ("partition", "offset", "leader_epoch")
    if file_count == 1:
        return frame.coalesce(1).sortWithinPartitions(*order)
    return frame.repartitionByRange(file_count, *order).sortWithinPartitions(*order)


def _added(spark: SparkSession, staging: str, written: DataFrame) -> list[AddedFile]:
    rows = written.groupBy(sf.col("_metadata.file_name").alias("name")).count().collect()
    named = {path.rpartition("/")[2]: path for path in Directory(Path(staging)).files(".")}
    return describe_files(spark, staging, {named[row["name"]]: row["count"] for row in rows})


def _totals(frame: DataFrame) -> _HourTotals:
    found = frame.agg(sf.count("*"), sf.sum("offset"), sf.sum("leader_epoch")).first()
    assert found is not None, "an aggregate has a row"
    return _HourTotals(*found)


def _check(hour: ArchivedHour, old: _HourTotals, new: _HourTotals) -> None:
    if old != new or new.rows != hour.rows:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{hour.path} is not compacted: it has {hour.rows} rows in the archive's commits, "
            f"{old.rows} in its files, and {new.rows} in the files that would replace them; run "
            "`archive reconcile`",
        )
