"""The tables of a rollup: `TABLES/partitions/level=hour/date=2026-11-22/`, and `followers`.

A day is written entirely and replaces the previous version. Rolling up again gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from tidelog_pipeline.lag.rollup import LEVELS, partition_lag, worst_followers
from tidelog_pipeline.storage.directory import Directory

LOCK = "_rollup/lock"
_STAGING = "_rollup/staging"
TABLES = {"partitions": partition_lag, "followers": worst_followers}


def has_day(directory: Directory, day: date) -> bool:
    return bool(directory.files(_folder("partitions", LEVELS[-1], day)))


def write(directory: Directory, samples: DataFrame, days: Iterable[date]) -> None:
    """Writes the tables. The caller holds `LOCK`.

    - `samples`: of these days only.
    """
    directory.remove(_STAGING)
    chosen = list(days)
    for table, rolled_up in TABLES.items():
        for level in LEVELS:
            staged = directory.at(f"{_STAGING}/{table}/level={level}")
            frame = rolled_up(samples, level)
            frame.repartition(sf.col("date")).sortWithinPartitions("at").write.partitionBy(
                "date"
            ).parquet(str(staged))
            for day in chosen:
                _publish(directory, _folder(table, level, day))
    directory.remove(_STAGING)


def _publish(directory: Directory, folder: str) -> None:
    staged = f"{_STAGING}/{folder}"
    if not directory.at(staged).exists():
        return
    if directory.at(folder).exists():
        directory.exchange(staged, folder)
    else:
        directory.publish(staged, folder)


def _folder(table: str, level: str, day: date) -> str:
    return f"{table}/level={level}/date={day}"
