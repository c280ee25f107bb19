"""`python -m tidelog_pipeline archive` on a real cluster, in a real local Spark."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import urllib.request
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.archives import BEGAN_MS, Act, all_of, fill, log_of, places
from spark.running import Running
from tidelog.client import SyncAdmin, SyncProducer
from tidelog.model import TopicPartition
from tidelog_pipeline.archive import protobuf_values, reconciling, writing
from tidelog_pipeline.archive.archive_log import CHECKPOINT, ArchiveLog
from tidelog_pipeline.lag.query_places import query_places
from tidelog_pipeline.lag.samples import QueryPlace
from tidelog_pipeline.running import EXIT_FAULT, EXIT_FOUND
from tidelog_pipeline.storage.directory import Directory
from tidelog_runtime.local.ports import HOST, choose_port
from unit.pipeline.archive.messages import DESCRIPTORS

# A busy machine takes its time to start Python in a worker.
PATIENCE_S = 400
LONG_SCHEMA = ", ".join(f"column_{number} BIGINT" for number in range(40))


def test_runs_archive_what_has_come_by_topic_date_and_hour(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=2)
    for partition in range(2):
        fill(cluster, topic, partition, [b"early"] * 40)
        fill(cluster, topic, partition, [b"late"] * 10, hour=2)
    act("run", "--topics", topic, "--max-offsets", "30")
    assert places(spark, tmp_path) == all_of(50, partitions=2)
    fill(cluster, topic, 1, [b"later"] * 5, hour=3)
    said = act("run", "--topics", topic)
    assert said[0].startswith(f"{topic}/0: 0 records archived, 50 in all, up to offset 50; 0 ")
    assert said[1].startswith(f"{topic}/1: 5 records archived, 55 in all, up to offset 55; 0 ")
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
    assert places(spark, tmp_path) == all_of(3)


def test_a_run_that_goes_on_tells_how_far_it_is_and_ends_in_order_when_it_is_told_to(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 20)
    metrics = f"{HOST}:{choose_port(None, taken=set(), rng=random.Random())}"
    told: list[QueryPlace] = []

    def stop_when_told() -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not told and time.monotonic() < give_up:
            time.sleep(0.1)
            if log_of(tmp_path).load().number:
                with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
                    places = query_places(answer.read().decode())
                told.extend(place for place in places if place.partition.topic == topic)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    threading.Thread(target=stop_when_told, daemon=True).start()
    act("run", "--topics", topic, "--every-seconds", "1", "--metrics-listen", metrics)
    assert told == [QueryPlace("archive-archive", TopicPartition(topic, 0), 20)]
    assert places(spark, tmp_path) == all_of(20)
    assert act("reconcile") == [f"{topic}/0: 20 records in the log and in the archive"]


def test_a_lost_checkpoint_doubles_nothing(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 20)
    act("run", "--topics", topic)
    Directory(tmp_path / "archive.state").remove(CHECKPOINT)
    fill(cluster, topic, 0, [b"x"] * 7)
    act("run", "--topics", topic)
    assert places(spark, tmp_path) == all_of(27)


@pytest.mark.parametrize("point", ["staged", "committed", "published"])
def test_a_driver_that_ends_at_any_point_loses_and_doubles_nothing(
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
        told = act("run", "--topics", topic, fails=EXIT_FAULT)
    assert "InterruptedError" in "".join(told)
    # DuckDB and Polars read all of these, as `OUTPUT/**/*.parquet`.
    seen = [str(path) for path in (tmp_path / "archive").rglob("*.parquet")]
    rows = sum(pq.read_metadata(path).num_rows for path in seen)
    assert rows == (20 if point == "published" else 0)
    fill(cluster, topic, 0, [b"x"] * 5)
    act("run", "--topics", topic)
    assert places(spark, tmp_path) == all_of(25)
    assert act("reconcile") == [f"{topic}/0: 25 records in the log and in the archive"]


def test_what_executors_wrote_elsewhere_is_not_committed(
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
        patch.setattr(writing, "staged_rows", lambda _rows, _location: [])
        said = act("run", "--topics", topic, fails=EXIT_FAULT)
    assert "20 rows were written" in said[-1]
    assert log_of(tmp_path).load().number == 0
    act("run", "--topics", topic)
    assert places(spark, tmp_path) == all_of(20)


def test_a_run_that_may_lose_a_topic_goes_on_with_the_others(
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
        assert places(spark, tmp_path) == all_of(count)


def test_a_back_fill_adds_what_is_not_there(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=2)
    for partition in range(2):
        for hour in range(3):
            fill(cluster, topic, partition, [b"x"] * 10, hour)
    since, until = "2023-11-14T23:00", "2023-11-15T00:00"
    act("backfill", "--topics", topic, "--since", since, "--until", until)
    assert places(spark, tmp_path) == [(p, n) for p in range(2) for n in range(10, 20)]
    assert act("reconcile", fails=EXIT_FOUND)[0].startswith(
        f"{topic}/0: DIFFERS: offsets 0 to 9 have records, and were never archived; archive them by"
    )
    act(
        "backfill",
        "--since",
        json.dumps({topic: {"1": 5}}),
        "--until",
        json.dumps({topic: {"1": 25}}),
    )
    act("run", "--topics", topic)
    assert places(spark, tmp_path) == all_of(30, partitions=2)
    act("reconcile")


def test_a_back_fill_that_ended_half_way_goes_on(
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
    assert places(spark, tmp_path) == [(p, n) for p in range(2) for n in range(20)]
    said = act("backfill", *flags)
    assert said[0].startswith(f"{topic}/0: 10 records archived, 30 in all, up to offset 30")
    assert places(spark, tmp_path) == all_of(30, partitions=2)
    act("reconcile")


def test_partitions_that_nobody_has_archived_are_told_of(cluster: Running, act: Act) -> None:
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


def test_small_files_of_closed_hours_become_one(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=2)
    for _ in range(3):
        for partition in range(2):
            fill(cluster, topic, partition, [b"x"] * 10)
        act("run", "--topics", topic, "--no-compaction")
    assert len(log_of(tmp_path).load().paths) == 6
    said = act("compact")
    hour = f"topic={topic}/date=2023-11-14/hour=22"
    assert said == [f"{hour}: 6 files are 1 now"]
    files = Directory(tmp_path / "archive").files(".")
    assert files == log_of(tmp_path).load().paths
    assert len(files) == 1
    assert places(spark, tmp_path) == all_of(30, partitions=2)
    fill(cluster, topic, 0, [b"x"])
    act("run", "--topics", topic)
    act("reconcile")


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


def test_json_becomes_columns_and_what_is_none_is_kept(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    two = b'{"id": 1}, {"id": 2}'
    fits, none = b'{"id": 1, "name": "calm"}', b'{"name": null}'
    fill(cluster, topic, 0, [fits, b'{"id": "one"}', b"{", none, two, b'{"id": 1} calm'])
    said = act(
        "run", "--topics", topic, "--value", "json", "--value-schema", "id BIGINT, name STRING"
    )
    assert said[-1] == "4 values are not of the schema; they are in the column unread."
    table = spark.read.parquet(str(tmp_path / "archive")).orderBy("offset").collect()
    assert [row.value and tuple(row.value) for row in table] == [
        (1, "calm"),
        None,
        None,
        (None, None),
        None,
        None,
    ]
    assert [row.unread and bytes(row.unread) for row in table] == [
        None,
        b'{"id": "one"}',
        b"{",
        None,
        two,
        b'{"id": 1} calm',
    ]
    fill(cluster, topic, 0, [b"]"])
    told = act("run", "--topics", topic, "--strict", fails=EXIT_FAULT)
    assert "1 values are not of the schema" in "".join(told)


def test_protobuf_becomes_columns_and_what_is_none_is_kept(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    of = protobuf_values.message_class(DESCRIPTORS, "sea.v1.Tide")
    depths = [{"metres": 2.5}]
    storm = of(id=1, name="ebb", depths=depths, large=2**64 - 1, wind=1, by_day={"mon": 3})
    values = [storm.SerializeToString(), of(id=2).SerializeToString(), b"\xff"]
    fill(cluster, topic, 0, values)
    descriptors = tmp_path / "sea.desc"
    descriptors.write_bytes(DESCRIPTORS)
    form = ("--value", "protobuf", "--descriptors", str(descriptors), "--keep-raw")
    assert (
        "did you mean sea.v1.Tide?"
        in act("run", "--topics", topic, *form, "--message", "sea.v1.Tied", fails=EXIT_FAULT)[0]
    )
    said = act("run", "--topics", topic, *form, "--message", "sea.v1.Tide")
    assert said[-1] == "1 values are not of the schema; they are in the column unread."
    # The archive knows what its values are.
    fill(cluster, topic, 0, values[:1])
    act("run", "--topics", topic)
    rows = spark.read.parquet(str(tmp_path / "archive")).orderBy("offset").collect()
    assert [row.value and (row.value.id, row.value.name) for row in rows] == [
        (1, "ebb"),
        (2, None),
        None,
        (1, "ebb"),
    ]
    assert rows[0].value.asDict(recursive=True) == {
        "id": 1,
        "name": "ebb",
        "depths": depths,
        "large": Decimal(2**64 - 1),
        "wind": "STORM",
        "by_day": {"mon": 3},
    }
    assert [row.unread and bytes(row.unread) for row in rows] == [None, None, b"\xff", None]
    assert [bytes(row.raw) for row in rows] == [*values, values[0]]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--value", "json", "--value-schema", "id BIGINT"), "offset 0: it is no JSON"),
        (("--value", "json", "--value-schema", "id BIGNIT"), "it must be columns as"),
        (("--value", "json", "--value-schema", "array<int>"), "without names of columns"),
        # Longer than a file's name may be.
        (("--value", "json", "--value-schema", LONG_SCHEMA), "offset 0: it is no JSON"),
    ],
)
def test_a_schema_that_does_not_match_is_told_before_any_task_runs(
    cluster: Running, tmp_path: Path, act: Act, flags: tuple[str, ...], told: str
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"calm"])
    assert told in act("run", "--topics", topic, *flags, fails=EXIT_FAULT)[0]
    assert not log_of(tmp_path).load().number
    assert not (tmp_path / "archive.state" / CHECKPOINT).exists()


def test_of_several_topics_each_must_fit_a_new_archive_and_what_comes_later_need_not(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    fits, other = cluster.new_topic(partitions=1), cluster.new_topic(partitions=1)
    fill(cluster, fits, 0, [b'{"id": 1}'] * 3)
    fill(cluster, other, 0, [b"calm"])
    form = ("--value", "json", "--value-schema", "id BIGINT")
    both = act("run", "--topics", f"{fits},{other}", *form, fails=EXIT_FAULT)
    assert f"{other}/0 offset 0: it is no JSON" in both[0]
    act("run", "--topics", fits, *form)
    act("backfill", "--topics", other, "--since", "earliest")
    assert len(places(spark, tmp_path)) == 4


def test_an_unknown_topic_is_told_before_any_task_runs(tmp_path: Path, act: Act) -> None:
    assert "nowhere" in act("run", "--topics", "nowhere", fails=EXIT_FAULT)[0]
    assert not (tmp_path / "archive.state" / CHECKPOINT).exists()


def test_a_range_that_the_log_does_not_have_is_told_before_any_task_runs(
    cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 20)
    since = json.dumps({topic: {"0": 30}})
    told = json.loads(act("backfill", "--since", since, fails=EXIT_FAULT)[0])["problem"]
    assert "--since" in told
    assert "startingOffsets" not in told
    assert not log_of(tmp_path).load().number


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
    told = json.loads(act("run", "--topics", topic, fails=EXIT_FAULT)[0])["problem"]
    assert "created again" in told
    assert "set --on-data-loss to continue" in told
    act("run", "--topics", topic, "--on-data-loss", "continue")
    values = [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "archive")).collect()]
    assert sorted(values) == [b"former"] * 10 + [b"new"] * 3
    said = act("reconcile")
    assert any(
        line.endswith("is gone") and "10 of what the log has deleted" in line for line in said
    )


def test_rows_that_were_lost_or_doubled_are_told(
    cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 10)
    act("run", "--topics", topic)
    fill(cluster, topic, 0, [b"x"] * 10, hour=1)
    act("run", "--topics", topic)
    first, second = (tmp_path / "archive" / path for path in log_of(tmp_path).load().paths)
    copy = first.with_name("copy.parquet")
    copy.write_bytes(first.read_bytes())
    assert "10 rows are there more than once" in act("reconcile", fails=EXIT_FOUND)[0]
    copy.unlink()
    second.unlink()
    damaged, differs = act("reconcile", fails=EXIT_FOUND)
    assert damaged.endswith("it is missing; run `archive repair`")
    assert "the log has 20 records and the archive 10" in differs


def test_a_reconciliation_goes_on_beside_a_run(
    cluster: Running, tmp_path: Path, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.new_topic(partitions=1)
    run = ("run", "--topics", topic)
    for _ in range(2):
        fill(cluster, topic, 0, [b"x"] * 10)
        act(*run, "--no-compaction")
    left, counted = [1], reconciling._counted_in_log

    def counted_while_a_run_compacts(*given: Any) -> Any:
        found = counted(*given)
        if left:
            left.pop()
            fill(cluster, topic, 0, [b"x"] * 10)
            act(*run)
        return found

    monkeypatch.setattr(reconciling, "_counted_in_log", counted_while_a_run_compacts)
    assert act("reconcile") == [f"{topic}/0: 30 records in the log and in the archive"]
    assert not left
    assert len(log_of(tmp_path).load().paths) == 1
