"""The only replica of a topic has damaged records, before and after they were archived."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.archives import Act, fill, log_of, positions
from spark.running import Running
from tidelog_pipeline.job_runner import EXIT_FAULT, EXIT_FOUND

CONTINUE = ("--on-data-loss", "continue")
BATCH = 10


def fill_batches(cluster: Running, topic: str, hours: list[int]) -> None:
    for hour in hours:
        fill(cluster, topic, 0, [b"x" * 100] * BATCH, hour)


def batches(*numbers: int) -> list[tuple[int, int]]:
    return [(0, n) for number in numbers for n in range(number * BATCH, (number + 1) * BATCH)]


def problem(output: list[str]) -> str:
    [found] = [
        p for p in (json.loads(line).get("problem") for line in output if line[0] == "{") if p
    ]
    return str(found)


@pytest.mark.rule("archive-damage-is-error-or-gap")
def test_damaged_records_are_an_error_or_a_recorded_gap_until_they_can_be_read(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = f"hurt-{next(cluster.names)}"
    cluster.create(topic, 1, replicas=1)
    run = ("run", "--topics", topic, "--no-compaction")
    backfill = ("backfill", "--topics", topic, "--since", "earliest")
    fill_batches(cluster, topic, [0, 0, 0])
    backup = cluster.segment(topic, 0).read_bytes()
    assert cluster.flip_a_bit(topic, 0) == BATCH
    for action in (run, backfill):
        found = problem(act(*action, fails=EXIT_FAULT))
        assert "offsets 10 to 19" in found
        assert found.endswith("to continue behind them, set --on-data-loss to continue")
    output = act(*run, *CONTINUE)
    known = "offsets 10 to 19 were damaged before they were archived"
    assert output == [
        f"{topic}/0: 20 records archived, 20 in all, up to offset 30; 0 offsets are "
        f"waiting; {known}"
    ]
    assert positions(spark, tmp_path) == batches(0, 2)
    archived = f"{topic}/0: 20 records in the log and in the archive"
    assert act("reconcile", "--deep") == [f"{archived}, {known}"]
    act(*backfill, *CONTINUE)
    assert positions(spark, tmp_path) == batches(0, 2)
    # Records that are archived already, and that a file has lost.
    fill_batches(cluster, topic, [1, 1, 1])
    act(*run)
    assert cluster.flip_a_bit(topic, 0) == 3 * BATCH
    found = problem(act("reconcile", fails=EXIT_FAULT))
    assert found.startswith(
        f"offsets 30 to 39 of {topic}/0 were damaged on the last disk that held"
    )
    assert found.endswith("to compare the others set --on-data-loss to continue")
    archived = f"{topic}/0: 40 records in the log and in the archive"
    hurt = "10 damaged in the log (offsets 30 to 39)"
    assert act("reconcile", *CONTINUE, "--deep") == [f"{archived}, {hurt}, {known}"]
    [path] = [p for p in log_of(tmp_path).load().paths if "hour=23" in p]
    (tmp_path / "archive" / path).unlink()
    output = act("repair", fails=EXIT_FOUND)
    assert f"{topic}/0: 20 rows are restored from the topic: offsets 40 to 59" in output
    assert output[-1] == (
        f"{topic}/0: 10 rows cannot be restored, since their records are damaged in the log, too: "
        "offsets 30 to 39"
    )
    assert positions(spark, tmp_path) == batches(0, 2, 4, 5)
    known = "offsets 10 to 19, 30 to 39 were damaged before they were archived"
    assert act("reconcile") == [f"{archived}, {known}"]
    assert act("repair")[-1] == "Nothing is lost or damaged."
    # From a backup.
    cluster.rewrite(topic, 0, backup)
    line = act("reconcile", fails=EXIT_FOUND)[0]
    assert "offsets 10 to 19 have records and were never archived" in line
    act(*backfill, *CONTINUE)
    assert positions(spark, tmp_path) == batches(0, 1, 2, 4, 5)
    assert act("reconcile") == [
        f"{topic}/0: 50 records in the log and in the archive, "
        "offsets 30 to 39 were damaged before they were archived"
    ]
    act("expire", "--before", "2023-11-14T23:00")
    assert positions(spark, tmp_path) == batches(4, 5)
    assert "30 were expired" in act("reconcile")[0]
