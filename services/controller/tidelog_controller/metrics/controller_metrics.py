"""A controller's metrics, collected for a scrape on its event loop and in slices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidelog.inspection.gateway_reports import GATEWAY_STATES, AnnouncedGateway, state_of
from tidelog.inspection.state_reports import BrokerBacklog
from tidelog_controller.metrics.cluster_metrics import ClusterMetrics, set_cluster_metrics
from tidelog_controller.metrics.decision_meter import DecisionMeter
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.telemetry.metrics import controller_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.controller_catalogue import CONTROLLER_TIMED_CHANGES
from tidelog_runtime.telemetry.metrics.service_catalogue import QUEUE_DEPTH, STATE_CHANGE_DURATION
from tidelog_runtime.telemetry.metrics.service_metrics import StateChangeMetrics, StoreMetrics
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

# Partitions between two yields to the event loop; about a millisecond.
PARTITIONS_PER_TURN = 512


class TermMetricsSource(Protocol):
    """What the collector reads from an active controller."""

    @property
    def context(self) -> Context: ...

    @property
    def is_loaded(self) -> bool:
        """Whether the cluster's state has been read from the store."""

    def backlogs(self) -> Sequence[BrokerBacklog]: ...

    def queues(self) -> Mapping[str, int]:
        """Queue depths by the names in CONTROLLER_QUEUES."""


class ControllerMetricsSource(Protocol):
    @property
    def term(self) -> TermMetricsSource | None:
        """None: the controller is a standby."""

    def described_gateways(self) -> Sequence[AnnouncedGateway]: ...


class ControllerCollector:
    def __init__(self, controller: ControllerMetricsSource) -> None:
        self._controller = controller

    async def collect(self, snapshot: MetricsSnapshot) -> None:
        term = self._controller.term
        snapshot.set(catalogue.ACTIVE, term is not None)
        states = Counter(map(state_of, self._controller.described_gateways()))
        for state in GATEWAY_STATES:
            snapshot.set(catalogue.GATEWAYS, states[state], state)
        queues = term.queues() if term is not None else {}
        for queue in catalogue.CONTROLLER_QUEUES:
            snapshot.set(QUEUE_DEPTH, queues.get(queue, 0), queue)
        if term is not None and term.is_loaded:
            await self._collect_cluster(snapshot, term)

    async def _collect_cluster(self, snapshot: MetricsSnapshot, term: TermMetricsSource) -> None:
        """Counts each partition as it is at that moment, and yields between slices."""
        context, cluster_metrics = term.context, ClusterMetrics()
        set_cluster_metrics(snapshot, context, term.backlogs())
        position = 0
        for topic in list(context.topics):
            for partition in context.partitions_of(topic):
                held = context.partition(partition)
                if held is not None:
                    cluster_metrics.add(partition, held)
                position += 1
                if position % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
        if self._controller.term is term:
            cluster_metrics.write_to(snapshot)


class ControllerMetrics:
    """All metrics of one controller.

    Measures from its creation on. `seconds`: a clock of which only differences are used.
    """

    def __init__(
        self, store: MeasuredStore, state_changes: StateChangeLog, seconds: Callable[[], float]
    ) -> None:
        self.decisions = DecisionMeter(seconds)
        self._store = store
        self._store_meter = StoreMetrics()
        self._changes = StateChangeMetrics(
            state_changes, STATE_CHANGE_DURATION.of(CONTROLLER_TIMED_CHANGES)
        )
        store.observers.append(self._store_meter.observe)
        state_changes.add_sink(self.decisions.take)

    async def collect(self, controller: ControllerMetricsSource, snapshot: MetricsSnapshot) -> None:
        self.decisions.write_to(snapshot)
        self._changes.write_to(snapshot)
        self._store_meter.write_to(snapshot, self._store.health)
        await ControllerCollector(controller).collect(snapshot)
