"""All metrics of one broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog_broker.metrics.collector import BrokerCollector
from tidelog_broker.metrics.request_meter import RequestMeter
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.telemetry.metrics import broker_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.broker_catalogue import BROKER_TIMED_CHANGES
from tidelog_runtime.telemetry.metrics.recording import Counts
from tidelog_runtime.telemetry.metrics.service_catalogue import STATE_CHANGE_DURATION
from tidelog_runtime.telemetry.metrics.service_metrics import StateChangeMetrics, StoreMetrics
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class MeteredBroker(Protocol):
    """The broker whose metrics are collected."""

    @property
    def store(self) -> MeasuredStore: ...

    @property
    def collector(self) -> BrokerCollector: ...

    def has_topic(self, topic: str) -> bool: ...


class IsrMeter:
    """Counts the ISR changes that this broker made as a leader. A sink of `StateChangeLog`."""

    def __init__(self) -> None:
        self._shrinks = Counts(catalogue.ISR_SHRINKS)
        self._expands = Counts(catalogue.ISR_EXPANDS)

    def take(self, change: StateChange) -> None:
        if change.stage is not Stage.COMPLETED:
            return
        if change.kind is Kind.ISR_SHRINK:
            self._shrinks.add(change.cause.value)
        elif change.kind is Kind.ISR_EXPAND:
            self._expands.add()

    def write_to(self, snapshot: MetricsSnapshot) -> None:
        snapshot.set_counters(self._shrinks)
        snapshot.set_counters(self._expands)


class BrokerMetrics:
    """Counts state changes and requests from now on, and answers of the store from `watch` on.

    `seconds`: a clock of which only differences count.
    """

    def __init__(self, state_changes: StateChangeLog, seconds: Callable[[], float]) -> None:
        self.requests = RequestMeter(seconds)
        self._store = StoreMetrics()
        self._changes = StateChangeMetrics(
            state_changes, STATE_CHANGE_DURATION.of(BROKER_TIMED_CHANGES)
        )
        self._isr = IsrMeter()
        state_changes.add_sink(self._isr.take)

    def watch(self, store: MeasuredStore) -> None:
        store.observers.append(self._store.observe)

    async def collect(self, broker: MeteredBroker, snapshot: MetricsSnapshot) -> None:
        self.requests.forget_topics_but(broker.has_topic)
        self.requests.write_to(snapshot)
        self._changes.write_to(snapshot)
        self._isr.write_to(snapshot)
        self._store.write_to(snapshot, broker.store.health)
        await broker.collector.collect(snapshot)
