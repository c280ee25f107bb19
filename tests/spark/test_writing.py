"""`df.write` and `df.writeStream` to a real cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.running import QUERY_TIMEOUT_S, Running
from tidelog.model import Codec
from tidelog.spark.sink_positions import BATCH_ID, QUERY_ID


def copy(frame: DataFrame, cluster: Running, topic: str, directory: Path) -> StreamingQuery:
    query = (
        frame.writeStream.format("tidelog")
        .option("bootstrap.servers", cluster.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
    finally:
        query.stop()
    return query


def test_a_batch_is_written(spark: SparkSession, cluster: Running) -> None:
    topic = cluster.new_topic(partitions=2)
    frame = spark.range(1000).selectExpr(
        "cast(id as string) as key",
        "concat('v', id) as value",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) as headers",
    )
    frame.write.format("tidelog").option("bootstrap.servers", cluster.bootstrap).option(
        "topic", topic
    ).option("compression", "zstd").mode("append").save()
    found = cluster.records(topic)
    assert sorted(record.value or b"" for record in found) == sorted(
        b"v%d" % n for n in range(1000)
    )
    assert all(record.headers == (("n", record.key),) for record in found)
    assert {record.partition for record in found} == {0, 1}


@pytest.mark.parametrize(
    ("columns", "mode", "message"),
    [
        (["id as value"], "append", "column value is bigint; it must be binary or string"),
        (["'x' as key"], "append", "there is no column value; name one"),
        (["'x' as value", "id as price"], "append", "column price cannot be written"),
        (["'x' as value"], "overwrite", "a log is never overwritten"),
        (["'x' as value"], "append", "topic 'land' does not exist; create it first"),
    ],
)
def test_unwritable_rows_are_reported_before_any_task_runs(
    spark: SparkSession, cluster: Running, columns: list[str], mode: str, message: str
) -> None:
    writer = spark.range(1).selectExpr(*columns).write.format("tidelog").mode(mode)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(PySparkException) as refusal:
        writer.options(**{"bootstrap.servers": cluster.bootstrap, "topic": "land"}).save()
    assert message in str(refusal.value)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs


def test_a_stream_to_an_unknown_topic_is_rejected(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    topic = cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"x"])
    frame = cluster.stream(spark, topic, startingOffsets="earliest")
    with pytest.raises(StreamingQueryException, match="topic 'land' does not exist; create it"):
        copy(frame, cluster, "land", tmp_path)


def test_the_topic_option_overrides_the_topic_column(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    """The rows do not go to the topic in their own column, which is their source."""
    topic, target = cluster.new_topic(partitions=2), cluster.new_topic(partitions=2)
    cluster.fill(topic, 1, [b"x"] * 3)
    copy(cluster.stream(spark, topic, startingOffsets="earliest"), cluster, target, tmp_path)
    assert [(r.partition, r.value) for r in cluster.records(target)] == [(1, b"x")] * 3
    assert len(cluster.records(topic)) == 3


@pytest.mark.rule("repeated-micro-batch-written-once")
def test_spark_passes_the_query_and_the_micro_batch_to_a_task(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    """The names are Spark's, and exactly-once writing depends on them."""
    topic = cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"x"] * 4)

    def with_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        names = [context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"value": names})

    target = cluster.new_topic(partitions=1)
    frame = cluster.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    query = copy(frame.mapInArrow(with_task, "value string"), cluster, target, tmp_path)
    values = [record.value for record in cluster.records(target)]
    assert values == [str(query.id).encode(), b"0", str(query.id).encode(), b"1"]


def test_a_task_that_dies_after_writing_is_repeated_and_duplicates_nothing(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    """The first attempt of each micro-batch fails once half of it is read and some is written."""
    topic, target = cluster.new_topic(partitions=1), cluster.new_topic(partitions=2)
    for codec in Codec:
        cluster.fill(topic, 0, [b"%s-%04d" % (codec.name.encode(), n) for n in range(2_000)], codec)
    failed = str(tmp_path / "failed-")

    def half_fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        marker = Path(failed + str(context.getLocalProperty(BATCH_ID)))
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if not marker.exists():
                marker.touch()
                # Time for the first half to be written.
                time.sleep(2)
                raise RuntimeError("planted")
            yield batch.slice(half)

    frame = cluster.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger="5000")
    halved = frame.select("key", "value").mapInArrow(half_fails, "key binary, value binary")
    copy(halved, cluster, target, tmp_path)
    assert len(list(tmp_path.glob("failed-*"))) == 2
    assert sorted(r.value or b"" for r in cluster.records(target)) == sorted(
        r.value or b"" for r in cluster.records(topic)
    )


@pytest.mark.rule("repeated-micro-batch-written-once")
def test_a_repeated_micro_batch_duplicates_nothing(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    """As after a driver that died between the writes and its checkpoint."""
    topic, target = cluster.new_topic(partitions=2), cluster.new_topic(partitions=3)
    for partition in range(2):
        cluster.fill(topic, partition, [b"%d-%04d" % (partition, n) for n in range(1_000)])
    frame = cluster.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger="1500")
    written = frame.select("key", "value")
    copy(written, cluster, target, tmp_path)
    before = cluster.records(target)
    assert len(before) == 2_000
    batches = sorted(int(p.name) for p in (tmp_path / "checkpoint/commits").glob("[0-9]*"))
    for name in (str(batches[-1]), f".{batches[-1]}.crc"):
        (tmp_path / "checkpoint/commits" / name).unlink(missing_ok=True)
    copy(written, cluster, target, tmp_path)
    assert cluster.records(target) == before
