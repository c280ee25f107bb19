"""All metrics of one controller."""

from __future__ import annotations

from collections.abc import Callable

from tidelog_controller.metrics.collector import Controller, ControllerCollector
from tidelog_controller.metrics.decision_meter import DecisionMeter
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.telemetry.metrics.controller_catalogue import CONTROLLER_TIMED_CHANGES
from tidelog_runtime.telemetry.metrics.service_catalogue import STATE_CHANGE_DURATION
from tidelog_runtime.telemetry.metrics.service_metrics import StateChangeMetrics, StoreMetrics
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class ControllerMetrics:
    """Measures from its creation on. `seconds`: a clock of which only differences are used."""

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

    async def collect(self, controller: Controller, snapshot: MetricsSnapshot) -> None:
        self.decisions.tell(snapshot)
        self._changes.write_to(snapshot)
        self._store_meter.write_to(snapshot, self._store.health)
        await ControllerCollector(controller).collect(snapshot)
