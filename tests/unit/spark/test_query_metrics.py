"""Progress and lag of queries."""

from __future__ import annotations

import json
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest

from tidelog.model import TopicPartition
from tidelog.spark.query_metrics import MAX_FAILED, QueryMetrics
from tidelog.spark.query_progress import PartitionProgress, progress_by_partition
from tidelog.spark.stream_offsets import ReadTo, TopicOffsets, to_value
from unit.client.described_services import StandingClock


@dataclass
class Progress:
    endOffset: str  # noqa: N815
    latestOffset: str  # noqa: N815


def offsets(*ends: int) -> str:
    positions = {partition: ReadTo(end) for partition, end in enumerate(ends)}
    return json.dumps(to_value({"sea": TopicOffsets("id", 1, positions)}))


def test_the_lag_is_the_number_of_unread_records() -> None:
    found = progress_by_partition([Progress(offsets(5, 9), offsets(8, 9))])
    assert found[TopicPartition("sea", 0)] == PartitionProgress(5, 8)
    assert [figures.lag for figures in found.values()] == [3, 0]


def test_of_two_sources_of_a_partition_the_slower_counts() -> None:
    sources = [Progress(offsets(7), offsets(8)), Progress(offsets(2), offsets(8))]
    assert progress_by_partition(sources)[TopicPartition("sea", 0)].lag == 6


def test_other_sources_are_ignored() -> None:
    kafka = Progress('{"sea": {"0": 5}}', '{"sea": {"0": 9}}')
    assert progress_by_partition([kafka, Progress("", "null")]) == {}


def exposition(metrics: QueryMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def test_prometheus_metrics_are_labelled_with_query_names() -> None:
    metrics = QueryMetrics()
    for batch_id in (3, 4):
        metrics.progressed("id-1", "copy", batch_id, 10, [Progress(offsets(5), offsets(8))])
    labels = 'partition="0",query="copy",query_id="id-1",topic="sea"'
    assert f"tidelog_spark_lag_records{{{labels}}} 3.0" in exposition(metrics)
    assert f"tidelog_spark_next_offset{{{labels}}} 5.0" in exposition(metrics)
    assert 'tidelog_spark_rows_total{query="copy",query_id="id-1"} 20.0' in exposition(metrics)
    assert 'tidelog_spark_batch_id{query="copy",query_id="id-1"} 4.0' in exposition(metrics)


def test_a_query_without_a_name_is_labelled_with_its_id() -> None:
    metrics = QueryMetrics()
    metrics.progressed("id-1", None, 0, 10, [])
    assert 'tidelog_spark_rows_total{query="id-1",query_id="id-1"} 10.0' in exposition(metrics)


def test_a_hanging_query_shows_the_time_of_its_last_progress() -> None:
    clock = StandingClock()
    metrics = QueryMetrics(clock)
    age = 'tidelog_spark_progress_age_seconds{query="copy",query_id="id-1"}'
    metrics.started("id-1", "copy")
    clock.now_ms += 7_000
    assert f"{age} 7.0" in exposition(metrics)
    metrics.progressed("id-1", "copy", 0, 10, [])
    assert f"{age} 0.0" in exposition(metrics)
    clock.now_ms += 3_000
    assert f"{age} 3.0" in exposition(metrics)
    metrics.idle("id-1")
    assert f"{age} 0.0" in exposition(metrics)


def test_only_failures_remain_of_an_ended_query() -> None:
    metrics = QueryMetrics()
    for failed in (True, False, True):
        metrics.started("id-1", "copy")
        metrics.progressed("id-1", "copy", 0, 10, [Progress(offsets(5), offsets(8))])
        metrics.ended("id-1", failed=failed)
    lines = [line for line in exposition(metrics).splitlines() if "id-1" in line]
    assert lines == ['tidelog_spark_failures_total{query="copy",query_id="id-1"} 2.0']


def test_the_failure_counter_starts_at_zero() -> None:
    metrics = QueryMetrics()
    metrics.started("id-1", "copy")
    assert 'tidelog_spark_failures_total{query="copy",query_id="id-1"} 0.0' in exposition(metrics)


def test_the_number_of_queries_with_failure_series_is_bounded() -> None:
    metrics = QueryMetrics()
    for number in range(MAX_FAILED + 5):
        metrics.ended(f"id-{number}", failed=True)
    lines = [line for line in exposition(metrics).splitlines() if "id-" in line]
    assert len(lines) == MAX_FAILED
    assert f'query="id-{MAX_FAILED + 4}"' in lines[-1]
