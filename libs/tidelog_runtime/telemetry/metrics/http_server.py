"""Serves a service's metrics to Prometheus.

The server runs in threads of its own. The values are collected on the service's event loop,
where nothing changes them meanwhile, and are formatted in the thread. If the loop is blocked, a
scrape still returns the other metrics, including how long the loop has been blocked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

import structlog
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
    make_wsgi_app,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as MetricFamily,
)
from prometheus_client.registry import Collector

from tidelog.metrics_endpoint import MetricsEndpoint, OnClosed
from tidelog.version import installed_version
from tidelog_runtime.config import ServiceConfig
from tidelog_runtime.telemetry.metrics.metric import LabelValues, Metric, MetricType
from tidelog_runtime.telemetry.metrics.recording import Histogram
from tidelog_runtime.telemetry.metrics.service_catalogue import (
    BUILD_INFO,
    EVENT_LOOP_SILENT,
    SCRAPE_COLLECTION,
    SCRAPE_TIMEOUTS,
)
from tidelog_runtime.telemetry.metrics.service_metrics import LoopWatch
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot

# Shorter than Prometheus' default of 10 s, so that the scrape is answered.
COLLECTION_TIMEOUT_S = 5.0

_log = structlog.get_logger()

# Sets the service's own values; yields to the event loop.
Collect = Callable[[MetricsSnapshot], Awaitable[None]]


class MetricsUnavailableError(Exception):
    """The server cannot listen on the address; the message says which, and what to do."""


class MetricsServer:
    """Serves metrics from `start` to `stop`.

    - `build`: service, cluster and version.
    - `on_closed`: reports connections that exceed a limit, in the server's thread.
    - `port`: the port that it serves on; 0 before `start`.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        collect: Collect,
        watch: LoopWatch,
        build: tuple[str, str, str],
        on_closed: OnClosed = lambda _address, _limit: None,
    ) -> None:
        self.port = 0
        self._collector = LoopCollector(tuple(metrics), collect, watch, build)
        self._watch = watch
        self._on_closed = on_closed
        self._server: MetricsEndpoint | None = None
        self._watching: asyncio.Task[None] | None = None

    def start(self, host: str, port: int) -> str:
        """Starts serving, on the running loop, and returns the address. Port 0: any free one.

        Raises `MetricsUnavailableError`.
        """
        self._collector.loop = asyncio.get_running_loop()
        registry = CollectorRegistry()
        registry.register(self._collector)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        try:
            server = MetricsEndpoint(host, port, make_wsgi_app(registry), self._on_closed)
        except OSError as error:
            raise MetricsUnavailableError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}; choose another "
                "address with metrics_listen, or off"
            ) from error
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        self._server, self.port = server, server.server_port
        self._watching = asyncio.create_task(self._watch.run(), name="loop-watch")
        return f"{host}:{self.port}"

    def stop(self) -> None:
        """Stops serving, without waiting for it.

        The server's thread notices within half a second, or ends with the process.
        """
        if self._watching is not None:
            self._watching.cancel()
        server, self._server = self._server, None
        if server is not None:
            threading.Thread(target=_end, args=(server,), name="metrics-end", daemon=True).start()


def serve(
    config: ServiceConfig, metrics: Iterable[Metric], collect: Collect, on_closed: OnClosed
) -> MetricsServer:
    """Starts serving at the configured address, which must exist. See `MetricsServer`.

    Raises `MetricsUnavailableError`.
    """
    assert config.metrics_address is not None
    build = (config.service, config.cluster, installed_version())
    server = MetricsServer(metrics, collect, LoopWatch(time.monotonic), build, on_closed)
    _log.info("metrics_served", address=server.start(*config.metrics_address))
    return server


def with_metrics_port(ports: Sequence[int], server: MetricsServer | None) -> list[int]:
    """Returns all ports of a process that serves metrics, or none."""
    return [*ports] if server is None else [*ports, server.port]


def _end(server: MetricsEndpoint) -> None:
    server.shutdown()
    server.server_close()


class Exposition:
    """The same metrics for a service that answers HTTP on its own event loop.

    - `build`: service, cluster and version.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        metrics: Iterable[Metric],
        collect: Collect,
        watch: LoopWatch,
        build: tuple[str, str, str],
    ) -> None:
        self._metrics = tuple(metrics)
        self._collect = collect
        self._watch = watch
        self._build = build
        self._library = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._library)
        self._rendering: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """Returns the metrics. Scrapes that arrive before it has them share the result: the event
        loop renders at most once for all requests that it receives at a time."""
        if self._rendering is None:
            self._rendering = asyncio.create_task(self._render(), name="scrape")
        return await asyncio.shield(self._rendering)

    async def _render(self) -> bytes:
        try:
            return await self._rendered()
        finally:
            self._rendering = None

    async def _rendered(self) -> bytes:
        began = time.perf_counter()
        snapshot = MetricsSnapshot(self._metrics)
        snapshot.set_histograms(self._watch.lag)
        await self._collect(snapshot)
        snapshot.begin()
        snapshot.set(BUILD_INFO, 1, *self._build)
        # Code that runs here shows that the loop runs.
        snapshot.set(EVENT_LOOP_SILENT, self._watch.silent_seconds)
        snapshot.set(SCRAPE_COLLECTION, time.perf_counter() - began)
        own = CollectorRegistry()
        own.register(_Collected(snapshot))
        return generate_latest(own) + generate_latest(self._library)


class _Collected(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._sheet = snapshot

    def collect(self) -> Iterator[MetricFamily]:
        yield from families(self._sheet)


class LoopCollector(Collector):
    """Collects metrics on the service's event loop, for a scrape in another thread.

    `MetricsEndpoint` runs one scrape at a time.

    - `loop`: the service's event loop; None before it runs.
    """

    def __init__(
        self,
        metrics: tuple[Metric, ...],
        collect: Collect,
        watch: LoopWatch,
        build: tuple[str, str, str],
    ) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._metrics = metrics
        self._collect = collect
        self._watch = watch
        self._build = build
        self._timeouts = 0

    def collect(self) -> Iterator[MetricFamily]:
        snapshot = MetricsSnapshot(self._metrics)
        silent_seconds = self._watch.silent_seconds
        began = time.perf_counter()
        if not self._gather(snapshot):
            self._timeouts += 1
            # The coroutine may still be changing the previous one.
            snapshot = MetricsSnapshot(self._metrics)
        snapshot.set(BUILD_INFO, 1, *self._build)
        snapshot.set(EVENT_LOOP_SILENT, silent_seconds)
        snapshot.set(SCRAPE_TIMEOUTS, self._timeouts)
        snapshot.set(SCRAPE_COLLECTION, time.perf_counter() - began)
        yield from families(snapshot)

    def _gather(self, snapshot: MetricsSnapshot) -> bool:
        loop = self.loop
        if loop is None or loop.is_closed() or self._watch.silent_seconds > COLLECTION_TIMEOUT_S:
            return False
        try:
            collecting = asyncio.run_coroutine_threadsafe(self._fill(snapshot), loop)
            try:
                collecting.result(COLLECTION_TIMEOUT_S)
            except (TimeoutError, concurrent.futures.CancelledError):
                collecting.cancel()
                return False
        except RuntimeError:  # the loop was closed in the meantime
            return False
        return True

    async def _fill(self, snapshot: MetricsSnapshot) -> None:
        snapshot.set_histograms(self._watch.lag)
        await self._collect(snapshot)
        snapshot.begin()


def families(snapshot: MetricsSnapshot) -> Iterator[MetricFamily]:
    for name, values in snapshot.values.items():
        metric = snapshot.metric(name)
        kind = CounterMetricFamily if metric.type is MetricType.COUNTER else GaugeMetricFamily
        family = kind(name, metric.help, labels=metric.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        yield family
    for name, series in snapshot.distributions.items():
        yield _histogram(snapshot.metric(name), series)


def _histogram(metric: Metric, series: dict[LabelValues, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(str, metric.buckets), "+Inf"]
    for labels, distribution in series.items():
        family.add_metric(
            labels,
            buckets=list(zip(bounds, distribution.cumulative(), strict=True)),
            sum_value=distribution.total,
        )
    return family
