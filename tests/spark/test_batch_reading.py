"""`spark.read.format("tidelog")` on a real cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.running import READY_TIMEOUT_S, Running
from tidelog.client import SyncProducer
from tidelog.model import Codec

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def test_rows_are_the_records(spark: SparkSession, cluster: Running) -> None:
    topic = cluster.new_topic(partitions=2)
    for codec in Codec:
        cluster.fill(topic, 0, [b"%s-%d" % (codec.name.encode(), n) for n in range(50)], codec)
    with SyncProducer(cluster.bootstrap) as producer:
        producer.send(topic, None, b"gone", partition=1, timestamp_ms=1_700_000_000_123)
        producer.send(topic, b"", partition=1, headers=[("a", b"1"), ("a", b"\xff")])
    rows = (
        cluster.read(spark, topic, includeHeaders="true").orderBy("partition", "offset").collect()
    )
    records = cluster.records(topic)
    assert len(rows) == len(records) == 202
    for row, record in zip(rows, records, strict=True):
        assert (row.topic, row.partition, row.offset) == (topic, record.partition, record.offset)
        assert (row.key, row.value) == (record.key, record.value)
        assert row.leader_epoch == record.leader_epoch
        assert [tuple(h) for h in row.headers or ()] == [(k, v) for k, v in record.headers]
    assert rows[-2].timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000)


def test_only_requested_columns_are_read(spark: SparkSession, cluster: Running) -> None:
    topic = cluster.new_topic()
    cluster.fill(topic, 1, [b"x"])
    frame = cluster.read(spark, topic, columns="offset,value")
    assert frame.columns == ["offset", "value"]
    assert frame.collect() == [(0, b"x")]


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_give_the_same_rows_with_and_without_pushdown(
    spark: SparkSession, cluster: Running, pushed: str
) -> None:
    topic = cluster.new_topic(partitions=5)
    with SyncProducer(cluster.bootstrap) as producer:
        for partition in range(3):
            times = [1_700_000_000_000 + 1000 * n for n in range(20)]
            producer.send_many(topic, [b"x"] * 20, partition=partition, timestamps_ms=times)
        # Neither the offset nor the time of these is requested.
        too_few, too_old = [1_700_000_015_000] * 4, [1_600_000_000_000] * 20
        producer.send_many(topic, [b"x"] * 4, partition=3, timestamps_ms=too_few)
        producer.send_many(topic, [b"x"] * 20, partition=4, timestamps_ms=too_old)
    since = datetime.fromtimestamp(1_700_000_012, UTC)
    spark.conf.set(PUSHDOWN, pushed)
    try:
        narrowed = cluster.read(spark, topic).where(
            (F.col("partition") != 1)
            & (F.col("offset") >= 5)
            & (F.col("offset") < 15)
            & (F.col("timestamp") >= since)
        )
        found = sorted((row.partition, row.offset) for row in narrowed.collect())
        tasks = narrowed.rdd.getNumPartitions()
    finally:
        spark.conf.set(PUSHDOWN, "true")
    assert found == [(p, o) for p in (0, 2) for o in (12, 13, 14)]
    assert tasks == (2 if pushed == "true" else 5)


def test_a_range_is_read_by_offsets_and_times_in_the_requested_number_of_tasks(
    spark: SparkSession, cluster: Running
) -> None:
    topic = cluster.new_topic(partitions=1)
    with SyncProducer(cluster.bootstrap) as producer:
        producer.send_many(topic, [b"x"] * 100, timestamps_ms=list(range(1000, 1100)))
    part = cluster.read(
        spark,
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 10}}}}',
        endingTimestamp="1090",
        minPartitions="4",
    )
    assert part.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in part.collect()) == list(range(10, 90))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "1"}, "does not exist; did you mean startingOffsets?"),
        ({"subscribe": "land"}, "topic 'land' does not exist"),
        (
            {"startingOffsets": '{"%s": {"0": 7}}'},
            "offset 7 of %s/0 is out of range; it must be 0 to 1",
        ),
        ({"startingOffsets": '{"%s": {"0": 0, "9": 0}}'}, "names %s/9, which is not read"),
        ({"assign": '{"%s": [4]}', "subscribe": ""}, "subscribe and assign given; give one"),
    ],
)
def test_invalid_options_are_reported_before_any_task_runs(
    spark: SparkSession, cluster: Running, options: dict[str, str], message: str
) -> None:
    topic = cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"x"])
    given = {name: text.replace("%s", topic) for name, text in options.items()}
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(PySparkException) as refusal:
        cluster.read(spark, topic, **given).collect()
    assert message.replace("%s", topic) in str(refusal.value)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs


def test_a_wrong_schema_is_rejected_with_the_right_one(
    spark: SparkSession, cluster: Running
) -> None:
    reader = cluster.reader(spark.read, "sea", columns="offset,value")
    with pytest.raises(PySparkException, match="which is struct<offset:bigint,value:binary>: omit"):
        reader.schema("value string").load().collect()


def test_a_task_survives_the_death_of_the_leader(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    """100 MB in one task; a few records are read when the leader dies."""
    topic = cluster.new_topic(partitions=1)
    for _ in range(20):
        cluster.fill(topic, 0, [b"%01000d" % n for n in range(5_000)])
    frame = cluster.read(spark, topic, columns="offset,value", bufferBytes="100000")
    leader = cluster.leader_of(topic, 0)
    begun, killed = tmp_path / "begun", tmp_path / "killed"

    def kill() -> None:
        wait_for(begun)
        cluster.run(cluster.local.kill(leader))
        killed.touch()

    def held_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            begun.touch()
            wait_for(killed)
            yield batch.select(["offset"])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        read = frame.mapInArrow(held_up, "offset long")
        found = read.agg(F.count("*"), F.countDistinct("offset"), F.max("offset")).first()
    finally:
        begun.touch()
        killer.join()
        cluster.restart(leader)
    assert tuple(found or ()) == (100_000, 100_000, 99_999)
    assert cluster.leader_epoch_of(topic, 0) > 0


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.05)
