"""Joins of records with the spans of many partitions and leader epochs, as Spark plans them."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog_pipeline.archive.core.commits import Archived
from tidelog_pipeline.archive.core.spans import LogId, Span
from tidelog_pipeline.archive.span_join import (
    drop_archived,
    keep_archived,
    rows_within_logs,
    with_topic_id,
)

PARTITIONS, EPOCHS = 5_000, 20


def row_for_each_epoch(spark: SparkSession) -> DataFrame:
    """Each epoch has two offsets, and a record at the second."""
    return spark.range(PARTITIONS * EPOCHS, numPartitions=2).selectExpr(
        "'sea' topic",
        "'id' topic_id",
        f"cast(id % {PARTITIONS} as int) partition",
        f"cast(id div {PARTITIONS} as int) leader_epoch",
        f"2 * (id div {PARTITIONS}) + 1 offset",
    )


def log(partition: int) -> LogId:
    return LogId("sea", "id", partition)


@pytest.mark.rule("archive-spans-are-joined")
def test_rows_of_5000_partitions_and_20_epochs_are_filtered_by_their_spans(
    spark: SparkSession,
) -> None:
    rows = row_for_each_epoch(spark)
    spans = {
        log(p): [Span(4 * e, 4 * e + 2) for e in range(EPOCHS // 2)] for p in range(PARTITIONS)
    }
    assert rows_within_logs(rows, spans).count() == PARTITIONS * EPOCHS // 2
    archived = [
        Archived(log(p), e, Span(2 * e, 2 * e + 2))
        for p in range(PARTITIONS)
        for e in range(EPOCHS)
        if (p, e) != (7, 7)
    ]
    [left] = drop_archived(rows, archived).collect()
    assert (left.partition, left.leader_epoch) == (7, 7)
    assert keep_archived(rows, archived).count() == PARTITIONS * EPOCHS - 1


def test_records_of_different_epochs_or_topics_are_distinct(spark: SparkSession) -> None:
    rows = row_for_each_epoch(spark).where("partition = 0 and offset < 4")
    assert drop_archived(rows, [Archived(log(0), 1, Span(0, 2))]).count() == 2
    another = LogId("land", "another", 0)
    assert drop_archived(rows, [Archived(another, 0, Span(0, 2))]).count() == 2
    assert rows_within_logs(rows, {another: [Span(0, 4)]}).count() == 0
    assert rows_within_logs(rows, {}).count() == 0


def test_a_topic_without_an_id_has_null(spark: SparkSession) -> None:
    rows = row_for_each_epoch(spark).where("partition = 0").drop("topic_id").limit(1)
    assert [row.topic_id for row in with_topic_id(rows, {"sea": "id-1"}).collect()] == ["id-1"]
    assert [row.topic_id for row in with_topic_id(rows, {}).collect()] == [None]
