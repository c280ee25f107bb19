"""Helpers for tests of the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from spark.running import Running
from tidelog.client import SyncProducer
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.storage.directory import Directory

HOUR_MS = 3_600_000
# 2023-11-14T22:13:20Z
BEGAN_MS = 1_700_000_000_000

Act = Callable[..., list[str]]


def fill(cluster: Running, topic: str, partition: int, values: list[bytes], hour: int = 0) -> None:
    with SyncProducer(cluster.bootstrap) as producer:
        at_ms = BEGAN_MS + hour * HOUR_MS
        producer.send_many(topic, values, partition=partition, timestamps_ms=at_ms)


def positions(spark: SparkSession, tmp_path: Path) -> list[tuple[int, int]]:
    """The offsets as a reader finds them that knows only Parquet."""
    table = spark.read.parquet(str(tmp_path / "archive"))
    return sorted((row.partition, row.offset) for row in table.collect())


def all_of(count: int, partitions: int = 1) -> list[tuple[int, int]]:
    return [(p, n) for p in range(partitions) for n in range(count)]


def log_of(tmp_path: Path) -> ArchiveLog:
    own = Directory(tmp_path / "archive.state")
    return ArchiveLog(Directory(tmp_path / "archive"), lambda: own)
