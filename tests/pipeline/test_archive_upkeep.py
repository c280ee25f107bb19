"""`python -m tidelog_pipeline archive`: compaction, reconciliation, and rejected runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.archives import BEGAN_MS, Act, all_of, fill, log_of, positions
from spark.running import Running
from tidelog.client import SyncAdmin, SyncProducer
from tidelog_pipeline.archive import reconciler
from tidelog_pipeline.archive.archive_log import CHECKPOINT
from tidelog_pipeline.job_runner import EXIT_FAULT, EXIT_FOUND
from tidelog_pipeline.storage.directory import Directory


@pytest.mark.rule("archive-hour-exchanged-in-one-step")
def test_small_files_of_closed_hours_become_one(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=2)
    for _ in range(3):
        for partition in range(2):
            fill(cluster, topic, partition, [b"x"] * 10)
        act("run", "--topics", topic, "--no-compaction")
    assert len(log_of(tmp_path).load().paths) == 6
    output = act("compact")
    hour = f"topic={topic}/date=2023-11-14/hour=22"
    assert output == [f"{hour}: 6 files are 1 now"]
    files = Directory(tmp_path / "archive").files(".")
    assert files == log_of(tmp_path).load().paths
    assert len(files) == 1
    assert positions(spark, tmp_path) == all_of(30, partitions=2)
    fill(cluster, topic, 0, [b"x"])
    act("run", "--topics", topic)
    act("reconcile")


@pytest.mark.rule("archive-hour-exchanged-in-one-step")
def test_a_time_in_another_unit_has_directories_of_its_own(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1, timestamp_max_ahead_ms="-1")
    for _ in range(2):
        fill(cluster, topic, 0, [b"in time"] * 10)
        with SyncProducer(cluster.bootstrap) as producer:
            for unit in (10**3, 10**6):
                producer.send_many(topic, [b"x"] * 5, partition=0, timestamps_ms=BEGAN_MS * unit)
        act("run", "--topics", topic)
    table = spark.read.parquet(str(tmp_path / "archive"))
    counts = {
        (str(row.date), row.hour): row["count"]
        for row in table.groupBy("date", "hour").count().collect()
    }
    assert counts == {("2023-11-14", 22): 20, ("None", None): 20}
    assert act("compact") == []
    assert act("reconcile") == [f"{topic}/0: 40 records in the log and in the archive"]


def test_an_unknown_topic_is_reported_before_any_task_runs(tmp_path: Path, act: Act) -> None:
    assert "nowhere" in act("run", "--topics", "nowhere", fails=EXIT_FAULT)[0]
    assert not (tmp_path / "archive.state" / CHECKPOINT).exists()


def test_a_range_outside_the_log_is_reported_before_any_task_runs(
    cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 20)
    since = json.dumps({topic: {"0": 30}})
    reported = json.loads(act("backfill", "--since", since, fails=EXIT_FAULT)[0])["problem"]
    assert "--since" in reported
    assert "startingOffsets" not in reported
    assert not log_of(tmp_path).load().number


@pytest.mark.rule("archive-records-known-without-checkpoint")
def test_a_topic_that_is_created_again_is_another_one(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"former"] * 10)
    act("run", "--topics", topic)
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.delete_topic(topic)
    cluster.create(topic, 1)
    fill(cluster, topic, 0, [b"new"] * 3)
    reported = json.loads(act("run", "--topics", topic, fails=EXIT_FAULT)[0])["problem"]
    assert "created again" in reported
    assert "set --on-data-loss to continue" in reported
    act("run", "--topics", topic, "--on-data-loss", "continue")
    values = [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "archive")).collect()]
    assert sorted(values) == [b"former"] * 10 + [b"new"] * 3
    output = act("reconcile")
    assert any(line.endswith("is deleted") and "10 deleted by the log" in line for line in output)


@pytest.mark.rule("archive-counted-by-leader-epoch")
def test_lost_and_duplicate_rows_are_reported(cluster: Running, tmp_path: Path, act: Act) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 10)
    act("run", "--topics", topic)
    fill(cluster, topic, 0, [b"x"] * 10, hour=1)
    act("run", "--topics", topic)
    first, second = (tmp_path / "archive" / path for path in log_of(tmp_path).load().paths)
    copy = first.with_name("copy.parquet")
    copy.write_bytes(first.read_bytes())
    unnamed, doubled = act("reconcile", fails=EXIT_FOUND)
    assert unnamed.endswith("copy.parquet: no commit names it; run `archive repair`")
    assert "10 rows are duplicates" in doubled
    copy.unlink()
    second.unlink()
    damaged, differs = act("reconcile", fails=EXIT_FOUND)
    assert damaged.endswith("it is missing; run `archive repair`")
    assert "the log has 20 records of leader epoch 0, and the archive 10" in differs


@pytest.mark.rule("archive-counted-by-leader-epoch")
def test_a_reconciliation_runs_beside_an_archive_run(
    cluster: Running, tmp_path: Path, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.new_topic(partitions=1)
    run = ("run", "--topics", topic)
    for _ in range(2):
        fill(cluster, topic, 0, [b"x"] * 10)
        act(*run, "--no-compaction")
    left, counted = [1], reconciler._counted_in_log

    def counted_while_a_run_compacts(*given: Any) -> Any:
        found = counted(*given)
        if left:
            left.pop()
            fill(cluster, topic, 0, [b"x"] * 10)
            act(*run)
        return found

    monkeypatch.setattr(reconciler, "_counted_in_log", counted_while_a_run_compacts)
    assert act("reconcile") == [f"{topic}/0: 30 records in the log and in the archive"]
    assert not left
    assert len(log_of(tmp_path).load().paths) == 1
