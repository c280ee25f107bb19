"""Progress and lag of a driver's queries for Prometheus.

from tidelog.spark import watch

watch(spark, port=9400)
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tidelog.client.clock import Clock, SystemClock
from tidelog.metrics_endpoint import MetricsEndpoint
from tidelog.model import TopicPartition
from tidelog.spark.query_progress import (
    BATCH_ID,
    FAILURES,
    LAG_RECORDS,
    NEXT_OFFSET,
    PROGRESS_AGE_SECONDS,
    ROWS,
    MetricSpec,
    PartitionProgress,
    SourceProgress,
    progress_by_partition,
)

# Ended queries that are kept: the last ones that failed.
MAX_FAILED = 100


class _Query(NamedTuple):
    """The progress of a query.

    - `reported_ms`: the time of its last event.
    - `batch_id`: None before its first micro-batch has ended.
    """

    name: str
    reported_ms: int
    batch_id: int | None = None
    rows: int = 0
    partitions: Mapping[TopicPartition, PartitionProgress] = MappingProxyType({})


class QueryMetrics(StreamingQueryListener, Collector):
    """Collects the progress of queries. Spark reports it in one thread, Prometheus scrapes in
    another. Of an ended query only the number of its failures remains."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._failures: dict[tuple[str, str], int] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self.started(str(event.id), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        self.progressed(
            str(progress.id),
            progress.name,
            progress.batchId,
            progress.numInputRows,
            progress.sources,
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        self.idle(str(event.id))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self.ended(str(event.id), failed=event.exception is not None)

    def started(self, query_id: str, name: str | None) -> None:
        with self._lock:
            self._queries[query_id] = _Query(name or query_id, self._clock.monotonic_ms())

    def progressed(
        self,
        query_id: str,
        name: str | None,
        batch_id: int,
        rows: int,
        sources: Iterable[SourceProgress],
    ) -> None:
        partitions = progress_by_partition(sources)
        with self._lock:
            before = self._queries.get(query_id)
            total = rows + (before.rows if before else 0)
            self._queries[query_id] = _Query(
                name or query_id, self._clock.monotonic_ms(), batch_id, total, partitions
            )

    def idle(self, query_id: str) -> None:
        with self._lock:
            if query_id in self._queries:
                reported_ms = self._clock.monotonic_ms()
                self._queries[query_id] = self._queries[query_id]._replace(reported_ms=reported_ms)

    def ended(self, query_id: str, *, failed: bool) -> None:
        with self._lock:
            query = self._queries.pop(query_id, None)
            if failed:
                labels = (query.name if query else query_id, query_id)
                self._failures[labels] = self._failures.pop(labels, 0) + 1
                if len(self._failures) > MAX_FAILED:
                    del self._failures[next(iter(self._failures))]

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            queries, failures = dict(self._queries), dict(self._failures)
        now_ms = self._clock.monotonic_ms()
        lag, position, batch, age = map(
            _gauge, (LAG_RECORDS, NEXT_OFFSET, BATCH_ID, PROGRESS_AGE_SECONDS)
        )
        rows, failed = map(_counter, (ROWS, FAILURES))
        for query_id, query in queries.items():
            of_query = (query.name, query_id)
            age.add_metric(of_query, (now_ms - query.reported_ms) / 1000)
            if query.batch_id is not None:
                batch.add_metric(of_query, query.batch_id)
                rows.add_metric(of_query, query.rows)
            for (topic, partition), progress in query.partitions.items():
                labels = (*of_query, topic, str(partition))
                lag.add_metric(labels, progress.lag)
                position.add_metric(labels, progress.next_offset)
        # A count of 0 comes first: Prometheus sees no increase where a series begins.
        running = {(query.name, query_id): 0 for query_id, query in queries.items()}
        for of_query, count in (running | failures).items():
            failed.add_metric(of_query, count)
        yield from (lag, position, batch, age, rows, failed)


def watch(spark: SparkSession, port: int, address: str = "127.0.0.1") -> QueryMetrics:
    """Serves the metrics of all queries of the session's driver on /metrics.

    `address` is the address to listen on. A Prometheus on another machine must be able to reach
    it.
    """
    metrics = QueryMetrics()
    spark.streams.addListener(metrics)
    registry = CollectorRegistry()
    registry.register(metrics)
    server = MetricsEndpoint(address, port, make_wsgi_app(registry))
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return metrics


def _gauge(metric: MetricSpec) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)


def _counter(metric: MetricSpec) -> CounterMetricFamily:
    return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
