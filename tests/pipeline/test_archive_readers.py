"""DuckDB and Polars read an archive as a directory of Parquet files, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.archives import Act, fill, log_of
from spark.running import Running
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.job_runner import EXIT_FAULT

duckdb = pytest.importorskip("duckdb", reason="requirements-readers.lock is not installed")
polars = pytest.importorskip("polars", reason="requirements-readers.lock is not installed")

Row = tuple[int, int, str, str, int, bytes]
COLUMNS = ("partition", "offset", "topic", "date", "hour", "value")


def by_duckdb(pattern: str) -> list[Row]:
    query = (
        f'select partition, "offset", topic, date::varchar, hour::int, value '
        f"from read_parquet('{pattern}', hive_partitioning = true)"
    )
    return sorted(duckdb.sql(query).fetchall())


def by_polars(pattern: str) -> list[Row]:
    table = polars.scan_parquet(pattern, hive_partitioning=True).select(COLUMNS).collect()
    rows = table.with_columns(polars.col("date").cast(str), polars.col("hour").cast(int)).rows()
    return sorted(rows)


def written(topic: str, date: str, hour: int, values: list[bytes], first: int = 0) -> list[Row]:
    return [(0, offset, topic, date, hour, value) for offset, value in enumerate(values, first)]


@pytest.mark.parametrize("read", [by_duckdb, by_polars])
def test_readers_find_every_committed_record_once(
    cluster: Running,
    tmp_path: Path,
    act: Act,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[str], list[Row]],
) -> None:
    topic, pattern = cluster.new_topic(partitions=1), str(tmp_path / "archive/**/*.parquet")
    early, late = [b"early-%d" % n for n in range(20)], [b"late-%d" % n for n in range(5)]
    fill(cluster, topic, 0, early)
    act("run", "--topics", topic, "--no-compaction")
    everything = written(topic, "2023-11-14", 22, early)
    assert read(pattern) == everything
    fill(cluster, topic, 0, late, hour=2)

    def end(*_: Any) -> None:
        raise InterruptedError("the driver ends between its commit and the publication")

    with monkeypatch.context() as broken:
        broken.setattr(ArchiveLog, "_finish", end)
        act("run", "--topics", topic, fails=EXIT_FAULT)
    assert read(pattern) == everything  # no file of the commit is visible yet
    act("run", "--topics", topic, "--no-compaction")
    everything += written(topic, "2023-11-15", 0, late, first=len(early))
    assert read(pattern) == everything
    fill(cluster, topic, 0, [b"more"])
    act("run", "--topics", topic, "--no-compaction")
    everything += written(topic, "2023-11-14", 22, [b"more"], first=len(everything))
    before = len(log_of(tmp_path).load().paths)
    act("compact")
    assert len(log_of(tmp_path).load().paths) < before
    assert read(pattern) == sorted(everything)
