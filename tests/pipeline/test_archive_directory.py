"""Archives in directories of unusual names, with files of others, and in a Spark of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.archives import Act, fill, log_of
from spark.running import Running
from tidelog.client import SyncAdmin
from tidelog_pipeline.archive import archive_job
from tidelog_pipeline.archive.log_reader import read_ranges_of_logs
from tidelog_pipeline.job_runner import EXIT_DONE, EXIT_FAULT, EXIT_FOUND


@pytest.mark.parametrize("name", [r"a [1]{x,y}*?#2\b%20"])
def test_a_path_with_special_characters_is_used_as_it_is(
    cluster: Running,
    spark: SparkSession,  # noqa: ARG001 - the session that the job finds
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    topic = cluster.new_topic(partitions=1)
    output = tmp_path / name / "archive"

    def act(action: str, *flags: str, status: int = EXIT_DONE) -> str:
        brokers = [] if action == "compact" else ["--bootstrap", cluster.bootstrap]
        capsys.readouterr()
        found = archive_job.main([action, "--output", str(output), *brokers, *flags])
        text = capsys.readouterr()
        assert found == status, text.err
        return text.out

    for _ in range(2):
        fill(cluster, topic, 0, [b"x"] * 5)
        act("run", "--topics", topic, "--no-compaction")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert act("compact").endswith("2 files are 1 now\n")
    [file] = output.rglob("*.parquet")
    file.unlink()
    act("reconcile", status=EXIT_FOUND)
    assert "10 rows are restored from the topic" in act("repair")
    assert "10 records in the log and in the archive" in act("reconcile", "--deep")


@pytest.mark.rule("archive-lost-files-are-restored")
def test_files_of_others_are_reported_and_removed(
    cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 5)
    act("run", "--topics", topic, "--no-compaction")
    [own] = (tmp_path / "archive").rglob("*.parquet")
    foreign = [
        own.with_name("README"),
        own.parents[2] / "top.parquet",
        own.with_name("[1].parquet"),
    ]
    foreign[0].write_text("notes")
    for path in foreign[1:]:
        path.write_bytes(own.read_bytes())
    assert "no commit names" in "".join(act("run", "--topics", topic, fails=EXIT_FAULT))
    *damaged, compared = act("reconcile", fails=EXIT_FOUND)
    assert ["it is no file of an archive" in line for line in damaged] == [True, False, True]
    assert "5 rows are duplicates" in compared
    act("repair")
    assert [path for path in foreign if path.exists()] == []
    assert act("reconcile") == [f"{topic}/0: 5 records in the log and in the archive"]


@pytest.mark.rule("archive-expired-hours-stay-expired")
def test_a_spark_that_ignores_unreadable_files_hides_no_rows(
    cluster: Running, spark: SparkSession, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"x"] * 5)
    act("run", "--topics", topic, "--no-compaction")
    [path] = log_of(tmp_path).load().paths
    file = tmp_path / "archive" / path
    file.write_bytes(bytes(file.stat().st_size))
    for kind in ("Corrupt", "Missing"):
        spark.conf.set(f"spark.sql.files.ignore{kind}Files", "true")
    [line] = act("expire", "--before", "2023-11-20", fails=EXIT_FOUND)
    assert "its hour and later ones are not expired" in line
    assert "5 rows are restored from the topic" in "".join(act("repair"))


@pytest.mark.rule("archive-records-known-without-checkpoint")
def test_a_topic_created_again_during_a_back_fill_is_not_archived_as_the_former(
    cluster: Running,
    spark: SparkSession,
    tmp_path: Path,
    act: Act,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"former"] * 6)
    parts = iter(range(9))

    def read_after_creation(*given, **options):  # type: ignore[no-untyped-def]
        if next(parts) == 1:
            with SyncAdmin(cluster.bootstrap) as admin:
                admin.delete_topic(topic)
            cluster.create(topic, 1)
            fill(cluster, topic, 0, [b"new"] * 6)
        return read_ranges_of_logs(*given, **options)

    monkeypatch.setattr(f"{archive_job.__name__}.read_ranges_of_logs", read_after_creation)
    backfill = ("backfill", "--topics", topic, "--since", "earliest", "--max-offsets", "3")
    error = "".join(act(*backfill, fails=EXIT_FAULT))
    assert "was deleted and created again while it was read" in error
    assert act(*backfill)[-1].startswith(f"{topic}/0: 6 records archived")
    rows = spark.read.parquet(str(tmp_path / "archive")).groupBy("topic_id", "value").count()
    assert sorted((bytes(row.value), row["count"]) for row in rows.collect()) == [
        (b"former", 3),
        (b"new", 6),
    ]
