"""`python -m tidelog_pipeline archive` with values that are parsed into columns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.archives import Act, fill, log_of, positions
from spark.running import Running
from tidelog_pipeline.archive.archive_log import CHECKPOINT
from tidelog_pipeline.archive.core import protobuf_values
from tidelog_pipeline.job_runner import EXIT_FAULT
from unit.pipeline.archive.messages import DESCRIPTORS

LONG_SCHEMA = ", ".join(f"column_{number} BIGINT" for number in range(40))


@pytest.mark.rule("archive-values-converted-or-kept")
def test_json_becomes_columns_and_invalid_values_are_kept(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(partitions=1)
    two = b'{"id": 1}, {"id": 2}'
    fits, none = b'{"id": 1, "name": "calm"}', b'{"name": null}'
    fill(cluster, topic, 0, [fits, b'{"id": "one"}', b"{", none, two, b'{"id": 1} calm'])
    output = act(
        "run", "--topics", topic, "--value", "json", "--value-schema", "id BIGINT, name STRING"
    )
    assert output[-1] == "4 values do not match the schema; they are in the column unread."
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
    message = act("run", "--topics", topic, "--strict", fails=EXIT_FAULT)
    assert "1 values do not match the schema" in "".join(message)


@pytest.mark.rule("archive-values-converted-or-kept")
def test_protobuf_becomes_columns_and_invalid_values_are_kept(
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
    output = act("run", "--topics", topic, *form, "--message", "sea.v1.Tide")
    assert output[-1] == "1 values do not match the schema; they are in the column unread."
    # The archive stores the form of its values.
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


@pytest.mark.rule("archive-values-converted-or-kept")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--value", "json", "--value-schema", "id BIGINT"), "offset 0: it is not JSON"),
        (("--value", "json", "--value-schema", "id BIGNIT"), "it must be columns as"),
        (("--value", "json", "--value-schema", "array<int>"), "without names of columns"),
        # Longer than a file name may be.
        (("--value", "json", "--value-schema", LONG_SCHEMA), "offset 0: it is not JSON"),
    ],
)
def test_a_schema_that_does_not_match_is_reported_before_any_task_runs(
    cluster: Running, tmp_path: Path, act: Act, flags: tuple[str, ...], message: str
) -> None:
    topic = cluster.new_topic(partitions=1)
    fill(cluster, topic, 0, [b"calm"])
    assert message in act("run", "--topics", topic, *flags, fails=EXIT_FAULT)[0]
    assert not log_of(tmp_path).load().number
    assert not (tmp_path / "archive.state" / CHECKPOINT).exists()


def test_every_topic_must_match_a_new_archives_schema_and_later_topics_need_not(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    fits, other = cluster.new_topic(partitions=1), cluster.new_topic(partitions=1)
    fill(cluster, fits, 0, [b'{"id": 1}'] * 3)
    fill(cluster, other, 0, [b"calm"])
    form = ("--value", "json", "--value-schema", "id BIGINT")
    both = act("run", "--topics", f"{fits},{other}", *form, fails=EXIT_FAULT)
    assert f"{other}/0 offset 0: it is not JSON" in both[0]
    act("run", "--topics", fits, *form)
    act("backfill", "--topics", other, "--since", "earliest")
    assert len(positions(spark, tmp_path)) == 4
