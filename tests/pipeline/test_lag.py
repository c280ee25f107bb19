"""`python -m tidelog_pipeline lag` on a real cluster, in a real local Spark."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.running import Running
from tidelog.client import SyncAdmin, SyncProducer
from tidelog.spark.query_metrics import QueryMetrics, watch
from tidelog_pipeline.job_runner import EXIT_FAULT
from tidelog_pipeline.lag import lag_job, sampler
from tidelog_runtime.local.addresses import HOST, choose_port

# A busy machine may take long to start Python in a worker.
PATIENCE_S = 400


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that does not answer is asked without this timeout."""
    monkeypatch.setattr(sampler, "ANSWER_TIMEOUT_MS", PATIENCE_S * 1000)


@pytest.fixture
def driver(spark: SparkSession) -> Iterator[str]:
    """The address at which this driver exposes its queries."""
    port = choose_port(None, taken=set(), rng=random.Random())
    metrics: QueryMetrics = watch(spark, port, HOST)
    yield f"{HOST}:{port}"
    spark.streams.removeListener(metrics)


def wait_until_reported(driver: str) -> None:
    """Spark reports progress to listeners in a separate thread."""
    give_up = time.monotonic() + PATIENCE_S
    while b"tidelog_spark_next_offset{" not in urllib.request.urlopen(f"http://{driver}").read():
        assert time.monotonic() < give_up, "the query reported no progress"
        time.sleep(0.1)


def sample(cluster: Running, topic: str, *flags: str) -> list[dict[str, Any]]:
    status = lag_job.main(
        ["sample", "--bootstrap", cluster.bootstrap, "--topic", topic, "--rounds", "1", *flags]
    )
    assert status == 0
    return [json.loads(record.value or b"") for record in cluster.records(topic)]


@pytest.mark.rule("lag-measured-to-present-end")
def test_followers_are_sampled_and_silent_drivers_are_listed(cluster: Running) -> None:
    topic, samples = cluster.new_topic(partitions=1), cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"x"] * 3)
    found = sample(cluster, samples, "--drivers", "127.0.0.1:1")
    leader = cluster.leader_of(topic, 0)
    of_topic = [one for one in found if one.get("topic") == topic]
    assert {one["who"] for one in of_topic} == {"1", "2", "3"} - {str(leader)}
    assert all(one["kind"] == "replica" and one["in_sync"] for one in of_topic)
    silent = [one for one in found if one["kind"] == "silent"]
    assert [one["who"] for one in silent] == ["driver 127.0.0.1:1"]
    assert "refused" in silent[0]["problem"]


def test_a_missing_samples_topic_is_created_on_request(
    cluster: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--bootstrap", cluster.bootstrap, "--topic", "lags", "--rounds", "1"]
    assert lag_job.main(["sample", *flags]) == EXIT_FAULT
    assert "--create" in capsys.readouterr().err
    for times in (1, 2):
        found = sample(cluster, "lags", "--create")
        assert len({one["at_ms"] for one in found}) == times
    with SyncAdmin(cluster.bootstrap) as admin:
        [partition] = admin.describe_topic("lags").partitions
    assert len(partition.replicas) == 3


@pytest.mark.rule("lag-measured-to-present-end")
def test_a_querys_lag_grows_while_it_does_nothing(
    spark: SparkSession, cluster: Running, tmp_path: Path, driver: str
) -> None:
    read, samples = cluster.new_topic(partitions=1), cluster.new_topic(partitions=1)
    cluster.fill(read, 0, [b"x"] * 10)
    query = (
        cluster.stream(spark, read, startingOffsets="earliest")
        .writeStream.format("noop")
        .queryName("copy")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        # Micro-batches begin at whole multiples of the interval since 1970: one of an hour could
        # begin now.
        .trigger(processingTime="36500 days")
        .start()
    )
    try:
        # processAllAvailable would wait for a micro-batch that finds nothing.
        wait_until_reported(driver)
        cluster.fill(read, 0, [b"x"] * 25)
        found = sample(cluster, samples, "--drivers", driver)
    finally:
        query.stop()
    lags = [(one["who"], one["lag_records"]) for one in found if one["kind"] == "query"]
    assert lags == [("copy", 25)]


@pytest.mark.rule("lag-levels-computed-from-samples")
def test_samples_become_tables_by_minute_hour_and_day(
    spark: SparkSession, cluster: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = cluster.new_topic(partitions=2)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = today - timedelta(days=1)
    values, times = [], []
    # Two hours with a sample a minute; the second broker lags by the same number of milliseconds.
    for minute in range(120):
        at_ms = int((day + timedelta(hours=3, minutes=minute)).timestamp() * 1000)
        for who, lag_ms in (("2", minute), ("3", 1)):
            values.append(
                json.dumps(
                    {
                        "at_ms": at_ms,
                        "kind": "replica",
                        "who": who,
                        "topic": "sea",
                        "partition": 0,
                        "lag_records": 2 * lag_ms,
                        "lag_ms": lag_ms,
                        "in_sync": lag_ms < 90,
                    }
                ).encode()
            )
            times.append(at_ms)
        # A query falls behind by a record a minute; its lag has no time.
        behind = {"kind": "query", "who": "copy", "topic": "sea", "partition": 0}
        values.append(json.dumps({"at_ms": at_ms, **behind, "lag_records": minute}).encode())
        times.append(at_ms)
    with SyncProducer(cluster.bootstrap) as producer:
        producer.send_many(topic, [*values, b"no sample"], timestamps_ms=[*times, times[-1]])
    tables = tmp_path / "tables"
    for _ in range(2):
        flags = ["--topic", topic, "--output", str(tables)]
        assert lag_job.main(["rollup", "--bootstrap", cluster.bootstrap, *flags]) == 0
    output = capsys.readouterr().out
    assert "240 of replica" in output
    assert "120 of query" in output
    assert "1 records of the topic are not samples" in output
    assert f"{day.date()} 1. broker 2: 99 % within 118 ms, at most 119 ms and 238 records" in output
    partitions = spark.read.parquet(str(tables / "partitions"))
    assert {
        row["level"]: row["count"] for row in partitions.groupBy("level").count().collect()
    } == {
        "minute": 360,
        "hour": 6,
        "day": 3,
    }
    hours = partitions.where("level = 'hour' and who = '2'").orderBy("at").collect()
    second = hours[1]
    assert (second.samples, second.lag_ms_p50, second.lag_records_max) == (60, 89.5, 238)
    assert second.in_sync_share == 0.5
    of_query = partitions.where("level = 'hour' and kind = 'query'").orderBy("at").collect()
    assert [(row.who, row.samples, row.lag_records_max) for row in of_query] == [
        ("copy", 60, 59),
        ("copy", 60, 119),
    ]
    assert (of_query[1].lag_records_p50, of_query[1].lag_ms_max) == (89.5, None)
    followers = spark.read.parquet(str(tables / "followers")).where("level = 'day'")
    assert [(row["rank"], row.who) for row in followers.orderBy("rank").collect()] == [
        (1, "2"),
        (2, "3"),
    ]


def test_an_unknown_topic_is_reported_before_any_task_runs(
    spark: SparkSession,  # noqa: ARG001 - the session that the job finds
    cluster: Running,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--bootstrap", cluster.bootstrap, "--topic", "nowhere", "--output", str(tmp_path)]
    assert lag_job.main(["rollup", *flags]) == EXIT_FAULT
    assert "nowhere" in capsys.readouterr().err
