"""Metrics that every service has: the store, state changes, clients, the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidelog.caller_limits import SERVICE_LIMITS, Callers
from tidelog.inspection.state_reports import StoreHealth
from tidelog.metrics_endpoint import OnClosed
from tidelog.state_changes.event import StateChange
from tidelog_runtime.clock import Clock
from tidelog_runtime.telemetry.metrics.metric import Metric
from tidelog_runtime.telemetry.metrics.recording import Counts, HistogramFamily
from tidelog_runtime.telemetry.metrics.service_catalogue import (
    CLIENT_REJECTIONS,
    CLIENT_REQUESTS,
    EVENT_LOOP_LAG,
    EVENTS_DROPPED,
    STATE_CHANGE_DURATION,
    STATE_CHANGES,
    STORE_DURATION,
    STORE_ERRORS,
    STORE_UNREACHABLE,
)
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class StoreMetrics:
    def __init__(self) -> None:
        self._durations = HistogramFamily(STORE_DURATION)
        self._errors = Counts(STORE_ERRORS)

    def observe(self, operation: str, seconds: float, answered: bool) -> None:
        """Records a request. An unanswered one has no duration: it took as long as its timeout."""
        if answered:
            self._durations.of(operation).observe(seconds)
        else:
            self._errors.add(operation)

    def write_to(self, snapshot: MetricsSnapshot, health: StoreHealth) -> None:
        snapshot.set_histograms(self._durations)
        snapshot.set_counters(self._errors)
        away_ms = max(0, health.unreachable_ms, health.rejects_writes_ms)
        snapshot.set(STORE_UNREACHABLE, away_ms / 1000)


class StateChangeMetrics:
    """A sink of a `StateChangeLog`.

    - `durations`: STATE_CHANGE_DURATION with the series of this service.
    """

    def __init__(self, log: StateChangeLog, durations: Metric) -> None:
        assert durations.name == STATE_CHANGE_DURATION.name
        self._log = log
        self._counts = Counts(STATE_CHANGES)
        self._durations = HistogramFamily(durations)
        log.add_sink(self.take)

    def take(self, change: StateChange) -> None:
        kind, stage = change.kind.value, change.stage.value
        self._counts.add(kind, stage)
        duration = self._durations.series.get((kind, stage))
        if duration is not None and change.duration_ms >= 0:
            duration.observe(change.duration_ms / 1000)

    def write_to(self, snapshot: MetricsSnapshot) -> None:
        snapshot.set_counters(self._counts)
        snapshot.set_histograms(self._durations)
        snapshot.set(EVENTS_DROPPED, self._log.dropped)


Collect = Callable[[MetricsSnapshot], Awaitable[None]]


def with_callers(collect: Collect, callers: Callers) -> Collect:
    async def collect_all(snapshot: MetricsSnapshot) -> None:
        snapshot.set(CLIENT_REQUESTS, callers.requests)
        for limit in SERVICE_LIMITS:
            snapshot.set(CLIENT_REJECTIONS, callers.rejected[limit], limit)
        await collect(snapshot)

    return collect_all


def closed_metrics_connections(callers: Callers, clock: Clock) -> OnClosed:
    """Returns what counts connections to the metrics port that exceed a limit."""
    return lambda address, limit: callers.metrics_connection_closed(
        address, limit, clock.monotonic_ms()
    )


INTERVAL_S = 0.5


class LoopWatch:
    """Measures one event loop.

    - `seconds`: a monotonic clock.
    - `silent_seconds`: can be read from another thread.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.lag = HistogramFamily(EVENT_LOOP_LAG)
        self._seconds = seconds
        self._due = seconds()

    @property
    def silent_seconds(self) -> float:
        return max(0.0, self._seconds() - self._due)

    async def run(self) -> None:
        observe = self.lag.of().observe
        while True:
            self._due = self._seconds() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            observe(max(0.0, self._seconds() - self._due))
