"""A real Prometheus collects the metrics of a driver's queries, and the dashboards' queries find
them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from monitoring import grafana
from monitoring.prometheus import SCRAPE_SECONDS, Prometheus, Series
from spark.running import QUERY_TIMEOUT_S, READY_TIMEOUT_S, Running
from tidelog.spark import watch
from tidelog_runtime.local.addresses import HOST, choose_port

QUERIES = [query for query in grafana.queries() if query.is_of_spark]
RATE_INTERVAL = f"{4 * SCRAPE_SECONDS}s"
RECORDS, RECORDS_PER_BATCH = 100, 10
SERVICE = "spark-tests"


@pytest.fixture
def prometheus(spark: SparkSession, cluster: Running, tmp_path: Path) -> Iterator[Prometheus]:
    port = choose_port(None, taken=set(), rng=random.Random())
    watch(spark, port, HOST)
    started = Prometheus(tmp_path / "prometheus", cluster.local.directory)
    labels = {"cluster": cluster.local.describe().cluster, "service": SERVICE}
    (tmp_path / "prometheus/spark").mkdir()
    (tmp_path / "prometheus/spark/tests.json").write_text(
        json.dumps([{"targets": [f"{HOST}:{port}"], "labels": labels}])
    )
    began = time.time()
    started.process.start()
    try:
        started.until_ready()
        # Prometheus may discover its targets only after a query with few records has ended.
        until_seen(started, f"up{{service='{SERVICE}'}} == 1", began)
        yield started
    finally:
        asyncio.run(started.process.stop())


def test_every_panel_of_queries_has_data_and_the_lag_falls(
    spark: SparkSession, cluster: Running, prometheus: Prometheus, tmp_path: Path
) -> None:
    """One query reads a few records each second. Another one, with enough records for minutes,
    fails meanwhile."""
    began = time.time()
    topic = cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"x"] * RECORDS)

    def reading(records_per_batch: int) -> DataFrame:
        limit = str(records_per_batch)
        return cluster.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit)

    copied = reading(RECORDS_PER_BATCH).writeStream.format("noop").queryName("slow")
    slow = copied.trigger(processingTime="1 second")
    marker = tmp_path / "fail"

    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if marker.exists():
            raise RuntimeError("planted")

    failing = reading(1).select("value").mapInArrow(fails, "value binary").writeStream
    broken = failing.format("noop").queryName("broken").trigger(processingTime="1 second").start()
    running = slow.start()
    try:
        until_seen(prometheus, "tidelog_spark_failures_total{query='broken'}", began)
        marker.touch()
        with pytest.raises(Exception, match="planted"):
            broken.awaitTermination(QUERY_TIMEOUT_S)
        running.processAllAvailable()
        until_seen(prometheus, "tidelog_spark_lag_records{query='slow'} == 0", began)
        until_seen(prometheus, "tidelog_spark_failures_total{query='broken'} == 1", began)
        time.sleep(3 * SCRAPE_SECONDS)
        answers = query_all(prometheus, cluster.local.describe().cluster, began)
    finally:
        running.stop()
        broken.stop()
    assert len(QUERIES) >= 6
    assert {place for place, series in answers.items() if not series} == set()
    [lag] = [
        series
        for series in answers["replication-lag: Spark query lag in records A"]
        if series.labels == {"query": "slow"}
    ]
    values = [value for _, value in lag.points]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0 < values[0] < RECORDS
    assert all(value % RECORDS_PER_BATCH == 0 for value in values)


def until_seen(prometheus: Prometheus, expr: str, began: float) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not prometheus.query_range(expr, began, time.time()):
        assert time.monotonic() < deadline, f"there is no {expr}"
        time.sleep(SCRAPE_SECONDS)


def query_all(prometheus: Prometheus, cluster: str, began: float) -> dict[str, list[Series]]:
    now = time.time()
    answers = {}
    for query in QUERIES:
        values = grafana.variables(
            query.dashboard,
            cluster,
            RATE_INTERVAL,
            lambda selector: prometheus.series(selector, began, now),
        )
        expr = grafana.put_in(query.expr, values)
        answers[query.place] = prometheus.query_range(expr, began, now)
    return answers
