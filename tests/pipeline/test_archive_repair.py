"""Files of an archive are lost, damaged or removed deliberately."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.archives import Act, all_of, fill, log_of, positions
from spark.running import Running
from tidelog.client import SyncAdmin, SyncProducer
from tidelog_pipeline.archive import restorer
from tidelog_pipeline.job_runner import EXIT_FAULT, EXIT_FOUND

MANY_PARTITIONS = 64


def files_of(tmp_path: Path) -> list[Path]:
    """In the order of their hours."""
    return [tmp_path / "archive" / path for path in log_of(tmp_path).load().paths]


def flip(path: Path, part: float = 0.5) -> None:
    """Flips a bit in the middle, which is within a value."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * part)] ^= 1
    path.write_bytes(content)


def values_of(spark: SparkSession, tmp_path: Path) -> list[bytes]:
    table = spark.read.parquet(str(tmp_path / "archive")).orderBy("partition", "offset")
    return [bytes(row.value) for row in table.collect()]


def archive_hours(cluster: Running, act: Act, topic: str, hours: int) -> None:
    for hour in range(hours):
        fill(cluster, topic, 0, [os.urandom(500) for _ in range(10)], hour)
        act("run", "--topics", topic, "--no-compaction")


@pytest.mark.rule("archive-lost-files-are-restored")
def test_work_continues_without_lost_files_and_a_back_fill_restores_them(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    archive_hours(cluster, act, topic, 3)
    first, _, last = files_of(tmp_path)
    for lost in (first, last):
        lost.unlink()
    fill(cluster, topic, 0, [b"x"] * 5, hour=3)
    output = act("run", "--topics", topic, "--no-compaction", fails=EXIT_FOUND)
    assert output[0].startswith("DAMAGED: ")
    assert output[0].endswith(f"{last.name} of the last commit is missing; run `archive repair`")
    assert positions(spark, tmp_path) == [(0, n) for n in (*range(10, 20), *range(30, 35))]
    output = act("reconcile", fails=EXIT_FOUND)
    assert [line.endswith("it is missing; run `archive repair`") for line in output] == [
        True,
        True,
        False,
    ]
    assert "its files have 15 rows, and its commits 35" in output[2]
    first_hour = ("--since", "earliest", "--until", "2023-11-14T23:00")
    output = act("backfill", "--topics", topic, *first_hour, fails=EXIT_FOUND)
    assert output[0] == f"{topic}/0: 10 rows are restored: offsets 0 to 9"
    act("backfill", "--topics", topic, "--since", "earliest")
    assert positions(spark, tmp_path) == all_of(35)
    assert act("reconcile", "--deep") == [f"{topic}/0: 35 records in the log and in the archive"]


@pytest.mark.rule("archive-lost-files-are-restored")
def test_a_repair_restores_lost_and_damaged_files_and_removes_unknown_ones(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    archive_hours(cluster, act, topic, 4)
    fill(cluster, topic, 0, [b"x"], hour=1)
    act("run", "--topics", topic, "--no-compaction")
    before = values_of(spark, tmp_path)
    lost, *of_an_hour, cut, sound = files_of(tmp_path)
    flipped = max(of_an_hour, key=lambda path: path.stat().st_size)
    lost.unlink()
    flip(flipped)
    cut.write_bytes(cut.read_bytes()[:-1])
    output = act("compact", fails=EXIT_FOUND)
    hour = flipped.parent.relative_to(tmp_path / "archive")
    assert output[0].startswith(f"DAMAGED: {hour} is not compacted: ")
    copy = sound.with_name("copy.parquet")
    copy.write_bytes(sound.read_bytes())
    # Only a deep reconciliation reads values.
    assert len([line for line in act("reconcile", fails=EXIT_FOUND) if "DAMAGED" in line]) == 3
    deep = [line for line in act("reconcile", "--deep", fails=EXIT_FOUND) if "DAMAGED" in line]
    assert len(deep) == 4
    assert "copy.parquet: no commit names it; run `archive repair`" in "".join(deep)
    assert "its SHA-256 is not the one it was committed with" in "".join(deep)
    planned = act("repair", "--dry-run", fails=EXIT_FOUND)
    assert "30 rows would be restored" in planned[-1]
    assert copy.exists()
    output = act("repair")
    assert f"{topic}/0: 30 rows are restored from the topic: offsets" in output[4]
    assert values_of(spark, tmp_path) == before
    kept = [path.name for path in (tmp_path / "archive.state/removed").rglob("*.parquet")]
    assert sorted(kept) == sorted([flipped.name, cut.name, copy.name])
    assert act("reconcile", "--deep") == [f"{topic}/0: 41 records in the log and in the archive"]
    assert act("repair")[-1] == "Nothing is lost or damaged."


@pytest.mark.rule("archive-commits-are-never-skipped")
def test_a_repair_restores_damaged_commits_from_their_files(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    """No other commit names the files of the first one; the files of the second were compacted."""
    topic = cluster.new_topic(partitions=1)
    run = ("run", "--topics", topic, "--no-compaction")
    archive_hours(cluster, act, topic, 2)
    commits = tmp_path / "archive.state/log"
    flip(commits / "000000000001.json")
    for action in (run, ("reconcile",), ("compact",)):
        assert "or run `archive repair`" in "".join(act(*action, fails=EXIT_FAULT))
    assert "no commit names it" in act("repair", "--dry-run", fails=EXIT_FOUND)[1]
    again = "10 rows of files whose commit is lost are archived again: offsets"
    assert f"{topic}/0: {again} 0 to 9" in act("repair")
    fill(cluster, topic, 0, [b"x"] * 10, hour=1)
    act(*run)
    max(commits.iterdir()).unlink()
    again_by = ("backfill", "--topics", topic, "--since", "earliest")
    assert "run `archive repair`" in "".join(act(*again_by, fails=EXIT_FAULT))
    assert f"{topic}/0: {again} 20 to 29" in act("repair")
    last = max(commits.iterdir())
    act("compact")
    last.unlink()
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.delete_topic(topic)
    assert f"{topic}/0: {again} 20 to 29" in act("repair")
    assert positions(spark, tmp_path) == all_of(30)
    assert "DIFFERS" not in act("reconcile", "--deep")[0]
    assert list(log_of(tmp_path).load().rows.values()) == [30]


@pytest.mark.rule("archive-lost-files-are-restored")
def test_rows_without_a_topic_are_saved_from_damaged_files_or_reported(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    archive_hours(cluster, act, topic, 1)
    values = [os.urandom(1_000) for _ in range(5_000)]
    fill(cluster, topic, 0, values, hour=1)
    act("run", "--topics", topic, "--no-compaction")
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.delete_topic(topic)
    lost, flipped = files_of(tmp_path)
    lost.unlink()
    flip(flipped, part=0.7)
    output = act("repair", fails=EXIT_FOUND)
    [saved] = [line for line in output if "are restored from damaged files" in line]
    count = int(saved.split()[1])
    assert 0 < count < 5_000
    offsets = f"offsets 0 to 9, {10 + count} to 5009"
    assert f"{topic}/0: {5_010 - count} rows cannot be restored: {offsets}" in output
    assert positions(spark, tmp_path) == [(0, 10 + n) for n in range(count)]
    assert values_of(spark, tmp_path) == values[:count]
    [line] = act("reconcile", "--deep")
    assert f"{5_010 - count} are lost ({offsets})" in line
    assert act("repair")[-1] == "Nothing is lost or damaged."


@pytest.mark.rule("archive-lost-files-are-restored")
def test_a_repair_restores_rows_that_a_repair_with_another_cluster_gave_up(
    spark: SparkSession,
    cluster: Running,
    tmp_path: Path,
    act: Act,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = cluster.new_topic(partitions=1)
    archive_hours(cluster, act, topic, 2)
    files_of(tmp_path)[0].unlink()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(restorer, "logs_now", lambda *_, **__: {})
        output = act("repair", fails=EXIT_FOUND)
        assert f"{topic}/0: 10 rows cannot be restored: offsets 0 to 9" in output
        assert act("repair")[-1] == "Nothing is lost or damaged."
    [line] = act("reconcile", fails=EXIT_FOUND)
    assert "the log has lost offsets 0 to 9 again: run `archive repair`" in line
    again = f"{topic}/0: the topic has some of 10 lost rows again"
    assert act("repair", "--dry-run", fails=EXIT_FOUND)[-1] == again
    assert act("repair")[:2] == [
        again,
        f"{topic}/0: 10 rows are restored from the topic: offsets 0 to 9",
    ]
    assert positions(spark, tmp_path) == all_of(20)
    assert act("reconcile", "--deep") == [f"{topic}/0: 20 records in the log and in the archive"]


@pytest.mark.rule("archive-lost-files-are-restored")
def test_files_in_the_directories_of_others_are_restored_to_their_own(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    """Two files were swapped, and their topics do not exist any more."""
    topics = [cluster.new_topic(partitions=1) for _ in range(2)]
    for hour, topic in enumerate(topics):
        fill(cluster, topic, 0, [topic.encode()] * (3 + hour), hour)
    act("run", "--topics", ",".join(topics), "--no-compaction")

    def rows() -> list[tuple[Any, ...]]:
        table = spark.read.parquet(str(tmp_path / "archive"))
        columns = ("topic", "date", "hour", "offset", "value")
        return sorted(tuple(str(row[name]) for name in columns) for row in table.collect())

    before = rows()
    first, second = files_of(tmp_path)
    aside = tmp_path / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    with SyncAdmin(cluster.bootstrap) as admin:
        for topic in topics:
            admin.delete_topic(topic)
    assert "cannot be restored" not in "".join(act("repair"))
    assert rows() == before


@pytest.mark.rule("archive-rows-compared-by-value")
def test_a_row_that_differs_from_its_record_is_found_in_files_without_checksums(
    cluster: Running, tmp_path: Path, act: Act
) -> None:
    """Their commit is of a release that recorded no checksums; the checksum of the page is
    right."""
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"value-%d" % n for n in range(10)])
    act("run", "--topics", topic)
    [path] = files_of(tmp_path)
    table = pq.read_table(path, partitioning=None)
    altered = pa.array([b"altered" if n == 7 else b"value-%d" % n for n in range(10)])
    pq.write_table(table.set_column(table.schema.get_field_index("value"), "value", altered), path)
    commit = tmp_path / "archive.state/log/000000000001.json"
    value = json.loads(commit.read_text())
    del value["sha256"]
    value["version"] = 2
    value["added"] = [[name, rows, path.stat().st_size] for name, rows, *_ in value["added"]]
    commit.write_text(json.dumps(value))
    assert "DIFFERS" not in act("reconcile")[0]
    [line] = act("reconcile", "--deep", fails=EXIT_FOUND)
    assert "DIFFERS: 1 rows differ from their records in the log: offsets 7 to 7" in line
    # The size is the same, so that only reading the file shows the difference.
    path.write_bytes(bytes(path.stat().st_size))
    unreadable = f"DAMAGED: {path.relative_to(tmp_path / 'archive')}: it cannot be read ("
    assert act("reconcile", fails=EXIT_FOUND)[0].startswith(unreadable)
    [line] = act("expire", "--before", "2023-11-20", fails=EXIT_FOUND)
    assert "its hour and later ones are not expired" in line
    assert act("repair")[-2] == f"{topic}/0: 10 rows are restored from the topic: offsets 0 to 9"


@pytest.mark.rule("archive-expired-hours-stay-expired")
def test_expired_hours_are_not_reported_missing_and_do_not_come_back(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    archive_hours(cluster, act, topic, 3)
    before = ("--before", "2023-11-15T00:30")
    hours = [f"topic={topic}/date=2023-11-14/hour={hour}" for hour in (22, 23)]
    planned = [f"{hour}: 1 files with 10 rows would be removed" for hour in hours]
    assert act("expire", *before, "--dry-run") == planned
    first = files_of(tmp_path)[0]
    first.rename(tmp_path / "kept")
    output = act("expire", *before, fails=EXIT_FOUND)
    assert output == [
        f"DAMAGED: {first.relative_to(tmp_path / 'archive')}: it is missing; its hour and later "
        "ones are not expired; run `archive repair`"
    ]
    first.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kept").rename(first)
    removed = [f"{hour}: 1 files with 10 rows are removed" for hour in hours]
    assert act("expire", *before) == removed
    assert not first.parent.exists()
    assert positions(spark, tmp_path) == [(0, n) for n in range(20, 30)]
    act("backfill", "--topics", topic, "--since", "earliest")
    fill(cluster, topic, 0, [b"late"], hour=0)
    act("run", "--topics", topic)
    assert positions(spark, tmp_path) == [(0, n) for n in range(20, 31)]
    [line] = act("reconcile", "--deep")
    assert "20 were expired" in line
    assert act("repair")[-1] == "Nothing is lost or damaged."
    assert "No hour ended" in act("expire", "--before", "2023-11-14T22:00")[0]


@pytest.mark.rule("archive-expired-hours-stay-expired")
def test_a_repair_does_not_restore_expired_rows_from_removed_files(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    """Otherwise they would count as the rows of an hour that is lost later."""
    topic = cluster.new_topic(partitions=1)
    archive_hours(cluster, act, topic, 3)
    first, second, _ = files_of(tmp_path)
    first.with_name("copy.parquet").write_bytes(first.read_bytes())
    assert "copy.parquet: no commit names it" in act("repair")[0]
    act("expire", "--before", "2023-11-14T23:00")
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.delete_topic(topic)
    second.unlink()
    output = act("repair", fails=EXIT_FOUND)
    assert f"{topic}/0: 10 rows cannot be restored: offsets 10 to 19" in output
    assert positions(spark, tmp_path) == [(0, n) for n in range(20, 30)]


def test_an_archive_of_many_partitions_is_archived_reconciled_and_read_again(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=MANY_PARTITIONS)

    def one_each() -> None:
        with SyncProducer(cluster.bootstrap) as producer:
            for partition in range(MANY_PARTITIONS):
                producer.send(topic, b"x", partition=partition)

    one_each()
    act("run", "--topics", topic)
    one_each()
    act("run", "--topics", topic, "--on-data-loss", "continue")
    assert len(act("reconcile")) == MANY_PARTITIONS
    assert positions(spark, tmp_path) == all_of(2, MANY_PARTITIONS)
