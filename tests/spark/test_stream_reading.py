"""`spark.readStream.format("tidelog")` on a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark.running import QUERY_TIMEOUT_S, Running
from tidelog.client import SyncAdmin
from tidelog.spark.data_source import TidelogDataSource, register_source


def run(frame: DataFrame, directory: Path) -> list[dict[str, Any]]:
    """Copies the current records to Parquet; returns the progress of each batch that had rows."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .option("path", str(directory / "table"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
        return [p for p in map(dict, query.recentProgress) if p["numInputRows"]]
    finally:
        query.stop()


def positions(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    table = spark.read.parquet(str(directory / "table"))
    return sorted((row.partition, row.offset) for row in table.collect())


def test_available_now_reads_everything_within_the_limit_and_ends(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    topic = cluster.new_topic(partitions=2)
    cluster.fill(topic, 0, [b"x"] * 70)
    cluster.fill(topic, 1, [b"x"] * 30)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    progress = run(cluster.stream(spark, topic, **options), tmp_path)
    assert [p["numInputRows"] for p in progress] == [40, 40, 20]
    assert positions(spark, tmp_path) == [(0, n) for n in range(70)] + [(1, n) for n in range(30)]


def test_a_query_continues_where_it_ended_and_finds_new_partitions(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    topic = cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"x"] * 10)
    frame = cluster.stream(spark, topic, startingOffsets="earliest")
    run(frame, tmp_path)
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.ask(lambda a: a.add_partitions(topic, 2))
    cluster.fill(topic, 0, [b"x"] * 5)
    cluster.fill(topic, 1, [b"x"] * 7)
    assert [p["numInputRows"] for p in run(frame, tmp_path)] == [12]
    assert positions(spark, tmp_path) == [(0, n) for n in range(15)] + [(1, n) for n in range(7)]


def test_a_recreated_topic_is_reported_and_may_be_read(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    topic = cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"former"] * 10)
    run(cluster.stream(spark, topic, startingOffsets="earliest"), tmp_path)
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.delete_topic(topic)
    cluster.create(topic, 1)
    cluster.fill(topic, 0, [b"new"] * 3)
    with pytest.raises(StreamingQueryException, match="was deleted and created again") as message:
        run(cluster.stream(spark, topic), tmp_path)
    assert "topic from offsets 0: 10 on can no longer be read" in str(message.value)
    run(cluster.stream(spark, topic, failOnDataLoss="false"), tmp_path)
    table = spark.read.parquet(str(tmp_path / "table"))
    values = sorted(bytes(row.value) for row in table.collect())
    assert values == [b"former"] * 10 + [b"new"] * 3


def test_a_truncated_log_is_reported_with_offsets_though_it_has_grown_again(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    topic = f"cut-{next(cluster.names)}"
    cluster.create(topic, 1, replicas=1)
    for _ in range(3):
        cluster.fill(topic, 0, [b"before"] * 10)
    run(cluster.stream(spark, topic, startingOffsets="earliest"), tmp_path)
    cluster.cut(topic, 0, cut_bytes=10)
    cluster.fill(topic, 0, [b"after"] * 15)
    with pytest.raises(
        StreamingQueryException,
        match=f"the log of {topic}/0 was truncated by an unclean election: at least the "
        "records that were read at offsets 20 to 29",
    ):
        run(cluster.stream(spark, topic), tmp_path)
    run(cluster.stream(spark, topic, failOnDataLoss="false"), tmp_path)
    table = spark.read.parquet(str(tmp_path / "table"))
    values = sorted(bytes(row.value) for row in table.collect())
    assert values == [b"after"] * 15 + [b"before"] * 30


def test_a_batch_option_is_rejected(spark: SparkSession, cluster: Running) -> None:
    query = cluster.stream(spark, "sea", endingOffsets="latest").writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="a stream has no end: omit it"):
        query.awaitTermination(QUERY_TIMEOUT_S)


class Again(TidelogDataSource):
    """A source of which no query has started."""

    @classmethod
    def name(cls) -> str:
        return "tidelog-again"


def shared_variables(spark: SparkSession) -> set[str]:
    """The shared variables that are sent with every task of any query of that format."""
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    return set(sources.lookupDataSource(Again.name()).dataSourceCls().envVars())


@pytest.mark.rule("session-queries-start-any-time")
def test_a_starting_query_does_not_change_the_shape_of_other_queries_tasks(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    """Otherwise tasks that are being sent at that time may become unreadable."""
    topic = cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"x"] * 3)
    register_source(spark, Again)
    before = shared_variables(spark)
    stream = cluster.reader(spark.readStream, topic, startingOffsets="earliest")
    assert len(run(stream.format(Again.name()).load(), tmp_path)) == 1
    assert shared_variables(spark) == before
