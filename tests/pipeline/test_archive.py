"""`python -m tidelog_pipeline archive` on a real cluster, in a real local Spark."""

from __future__ import annotations

import json
import random
import shutil
import signal
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.archives import Act, all_of, fill, log_of, positions
from spark.running import Running
from tidelog.client import SyncAdmin
from tidelog.model import TopicPartition
from tidelog_pipeline.archive import archive_writer
from tidelog_pipeline.archive.archive_log import CHECKPOINT, ArchiveLog
from tidelog_pipeline.job_runner import EXIT_FAULT, EXIT_FOUND
from tidelog_pipeline.lag.sampler import query_positions
from tidelog_pipeline.lag.samples import QueryPosition
from tidelog_pipeline.storage.directory import Directory
from tidelog_runtime.local.addresses import HOST, choose_port

# A busy machine may take long to start Python in a worker.
PATIENCE_S = 400


def test_runs_archive_new_records_by_topic_date_and_hour(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=2)
    for partition in range(2):
        fill(cluster, topic, partition, [b"early"] * 40)
        fill(cluster, topic, partition, [b"late"] * 10, hour=2)
    act("run", "--topics", topic, "--max-offsets", "30")
    assert positions(spark, tmp_path) == all_of(50, partitions=2)
    fill(cluster, topic, 1, [b"later"] * 5, hour=3)
    output = act("run", "--topics", topic)
    assert output[0].startswith(f"{topic}/0: 0 records archived, 50 in all, up to offset 50; 0 ")
    assert output[1].startswith(f"{topic}/1: 5 records archived, 55 in all, up to offset 55; 0 ")
    table = spark.read.parquet(str(tmp_path / "archive"))
    hours = {(str(r.date), r.hour, bytes(r.value)) for r in table.collect()}
    assert hours == {
        ("2023-11-14", 22, b"early"),
        ("2023-11-15", 0, b"late"),
        ("2023-11-15", 1, b"later"),
    }
    assert act("reconcile") == [
        f"{topic}/0: 50 records in the log and in the archive",
        f"{topic}/1: 55 records in the log and in the archive",
    ]


def test_a_topic_without_records_is_archived_once_it_has_some(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    act("run", "--topics", topic)
    fill(cluster, topic, 0, [b"calm"] * 3)
    act("run", "--topics", topic)
    assert positions(spark, tmp_path) == all_of(3)


def test_a_continuous_run_reports_its_progress_and_stops_cleanly_on_request(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 20)
    metrics = f"{HOST}:{choose_port(None, taken=set(), rng=random.Random())}"
    output: list[QueryPosition] = []

    def stop_after_progress() -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not output and time.monotonic() < give_up:
            time.sleep(0.1)
            if log_of(tmp_path).load().number:
                with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
                    positions = query_positions(answer.read().decode())
                output.extend(place for place in positions if place.partition.topic == topic)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    threading.Thread(target=stop_after_progress, daemon=True).start()
    act("run", "--topics", topic, "--every-seconds", "1", "--metrics-listen", metrics)
    assert output == [QueryPosition("archive-archive", TopicPartition(topic, 0), 20)]
    assert positions(spark, tmp_path) == all_of(20)
    assert act("reconcile") == [f"{topic}/0: 20 records in the log and in the archive"]


@pytest.mark.rule("archive-records-known-without-checkpoint")
def test_a_truncated_or_lost_checkpoint_loses_and_duplicates_nothing(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 20)
    act("run", "--topics", topic)
    own = Directory(tmp_path / "archive.state")
    shutil.copytree(own.at(CHECKPOINT), tmp_path / "older")
    fill(cluster, topic, 0, [b"x"] * 7)
    act("run", "--topics", topic)
    # Spark does not sync the checkpoint: a power failure may lose the last micro-batches.
    own.remove(CHECKPOINT)
    (tmp_path / "older").rename(own.at(CHECKPOINT))
    fill(cluster, topic, 0, [b"x"] * 7)
    act("run", "--topics", topic)
    assert positions(spark, tmp_path) == all_of(34)
    own.remove(CHECKPOINT)
    fill(cluster, topic, 0, [b"x"] * 7)
    act("run", "--topics", topic)
    assert positions(spark, tmp_path) == all_of(41)


@pytest.mark.rule("archive-commit-is-one-file", "archive-table-holds-committed-files")
@pytest.mark.parametrize("point", ["staged", "committed", "published"])
def test_a_driver_that_ends_at_any_point_loses_and_duplicates_nothing(
    spark: SparkSession,
    cluster: Running,
    tmp_path: Path,
    act: Act,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 20)

    def end(*_: Any) -> None:
        raise InterruptedError(point)

    def finish_and_end(log: ArchiveLog, commit: Any) -> None:
        finish(log, commit)
        end()

    finish = ArchiveLog._finish
    with monkeypatch.context() as broken:
        if point == "staged":
            broken.setattr(ArchiveLog, "commit", end)
        else:
            broken.setattr(ArchiveLog, "_finish", end if point == "committed" else finish_and_end)
        output = act("run", "--topics", topic, fails=EXIT_FAULT)
    assert "InterruptedError" in "".join(output)
    # DuckDB and Polars read all of these, as `OUTPUT/**/*.parquet`.
    seen = [str(path) for path in (tmp_path / "archive").rglob("*.parquet")]
    rows = sum(pq.read_metadata(path).num_rows for path in seen)
    assert rows == (20 if point == "published" else 0)
    fill(cluster, topic, 0, [b"x"] * 5)
    act("run", "--topics", topic)
    assert positions(spark, tmp_path) == all_of(25)
    assert act("reconcile") == [f"{topic}/0: 25 records in the log and in the archive"]


@pytest.mark.rule("archive-commit-is-one-file")
def test_files_that_executors_wrote_elsewhere_are_not_committed(
    spark: SparkSession,
    cluster: Running,
    tmp_path: Path,
    act: Act,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 20)
    with monkeypatch.context() as patch:
        # As a driver sees a directory that executors do not share.
        patch.setattr(archive_writer, "staged_rows", lambda _rows, _location: [])
        output = act("run", "--topics", topic, fails=EXIT_FAULT)
    assert "20 rows were written" in output[-1]
    assert log_of(tmp_path).load().number == 0
    act("run", "--topics", topic)
    assert positions(spark, tmp_path) == all_of(20)


def test_a_run_that_may_lose_a_topic_continues_with_the_others(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    kept, gone = cluster.new_topic(partitions=1), cluster.new_topic(partitions=1)
    flags = ("--topics", f"{kept},{gone}", "--on-data-loss", "continue")
    fill(cluster, kept, 0, [b"x"] * 20)
    act("run", *flags)
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.delete_topic(gone)
    for count in (25, 30):
        fill(cluster, kept, 0, [b"x"] * 5)
        act("run", *flags)
        assert positions(spark, tmp_path) == all_of(count)


@pytest.mark.rule("archive-records-known-without-checkpoint")
def test_a_back_fill_adds_missing_records(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=2)
    for partition in range(2):
        for hour in range(3):
            fill(cluster, topic, partition, [b"x"] * 10, hour)
    since, until = "2023-11-14T23:00", "2023-11-15T00:00"
    act("backfill", "--topics", topic, "--since", since, "--until", until)
    assert positions(spark, tmp_path) == [(p, n) for p in range(2) for n in range(10, 20)]
    assert act("reconcile", fails=EXIT_FOUND)[0].startswith(
        f"{topic}/0: DIFFERS: offsets 0 to 9 have records and were never archived; archive them by"
    )
    act(
        "backfill",
        "--since",
        json.dumps({topic: {"1": 5}}),
        "--until",
        json.dumps({topic: {"1": 25}}),
    )
    act("run", "--topics", topic)
    assert positions(spark, tmp_path) == all_of(30, partitions=2)
    act("reconcile")


def test_a_back_fill_that_ended_half_way_is_continued(
    spark: SparkSession,
    cluster: Running,
    tmp_path: Path,
    act: Act,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = cluster.new_topic(partitions=2)
    for partition in range(2):
        fill(cluster, topic, partition, [b"x"] * 30)
    flags = ("--topics", topic, "--since", "earliest", "--max-offsets", "20")
    finish = ArchiveLog.commit

    def end_at_the_third(log: ArchiveLog, commit: Any) -> None:
        if log.state.number == 2:
            raise InterruptedError("at the third")
        finish(log, commit)

    with monkeypatch.context() as broken:
        broken.setattr(ArchiveLog, "commit", end_at_the_third)
        assert "at the third" in "".join(act("backfill", *flags, fails=EXIT_FAULT))
    assert positions(spark, tmp_path) == [(p, n) for p in range(2) for n in range(20)]
    output = act("backfill", *flags)
    assert output[0].startswith(f"{topic}/0: 10 records archived, 30 in all, up to offset 30")
    assert positions(spark, tmp_path) == all_of(30, partitions=2)
    act("reconcile")


def test_partitions_without_an_archive_are_reported(cluster: Running, act: Act) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 10)
    act("run", "--topics", topic)
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.ask(lambda a: a.add_partitions(topic, 2))
    fill(cluster, topic, 1, [b"x"] * 5)
    assert act("reconcile") == [
        f"{topic}/0: 10 records in the log and in the archive",
        f"{topic}/1: 0 records in the log and in the archive, offsets 0 to 4 wait for the next run",
    ]
