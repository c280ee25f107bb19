"""Spark reads and writes a topic with more partitions on each broker than one request may name."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark.running import QUERY_TIMEOUT_S, Running
from spark.wide_topic import FILLED, PARTITIONS, wide_topic
from tidelog.client import SyncProducer


def fill(cluster: Running, topic: str, value: bytes) -> None:
    with SyncProducer(cluster.bootstrap) as producer:
        for partition in FILLED:
            producer.send(topic, value, partition=partition)


def copy(frame: DataFrame, cluster: Running, topic: str, directory: Path) -> int:
    """Copies the current records; returns the number of rows."""
    query = (
        frame.writeStream.format("tidelog")
        .options(**{"bootstrap.servers": cluster.bootstrap, "topic": topic})
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
        return sum(progress["numInputRows"] for progress in query.recentProgress)
    finally:
        query.stop()


def test_a_wide_topic_is_read_streamed_and_written_exactly_once(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    with wide_topic(cluster) as wide:
        fill(cluster, wide, b"first")
        found = cluster.read(spark, wide).select("partition", "offset").collect()
        assert sorted(map(tuple, found)) == [(partition, 0) for partition in FILLED]
        target = cluster.new_topic(partitions=1)
        frame = cluster.stream(spark, wide, startingOffsets="earliest").select("key", "value")
        assert copy(frame, cluster, target, tmp_path / "from") == len(FILLED)
        # It continues where it ended, which the leaders of all partitions confirm.
        fill(cluster, wide, b"second")
        assert copy(frame, cluster, target, tmp_path / "from") == len(FILLED)
        values = sorted(record.value or b"" for record in cluster.records(target))
        assert values == [b"first"] * len(FILLED) + [b"second"] * len(FILLED)
        # The sink checks all partitions for records of an earlier attempt of a task.
        source = cluster.stream(spark, target, startingOffsets="earliest")
        of_first = f"if(cast(value as string) = 'first', {PARTITIONS - 3}, {PARTITIONS - 4})"
        rows = source.selectExpr("value", f"{of_first} partition")
        assert copy(rows, cluster, wide, tmp_path / "to") == len(values)
        written = cluster.read(spark, wide).groupBy("partition").count().collect()
        assert dict(map(tuple, written)) == {
            **dict.fromkeys(FILLED, 2),
            PARTITIONS - 3: len(FILLED),
            PARTITIONS - 4: len(FILLED),
        }
