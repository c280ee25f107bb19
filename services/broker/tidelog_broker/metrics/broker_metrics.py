"""Everything that is measured of one broker."""

from __future__ import annotations

from collections.abc import Callable

from tidelog_broker.metrics.collector import BrokerCollector
from tidelog_broker.metrics.isr_meter import IsrMeter
from tidelog_broker.metrics.request_meter import RequestMeter
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.telemetry.metrics.broker_catalogue import BROKER_TIMED_CHANGES
from tidelog_runtime.telemetry.metrics.service_catalogue import STATE_CHANGE_DURATION
from tidelog_runtime.telemetry.metrics.sheet import Sheet
from tidelog_runtime.telemetry.metrics.state_changes import StateChangeMeter
from tidelog_runtime.telemetry.metrics.store_meter import StoreMeter
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class BrokerMetrics:
    """Counts from now on. `seconds`: a clock that only differences are taken of."""

    def __init__(
        self, store: MeasuredStore, state_changes: StateChangeLog, seconds: Callable[[], float]
    ) -> None:
        self.requests = RequestMeter(seconds)
        self._store = store
        self._store_meter = StoreMeter()
        self._changes = StateChangeMeter(STATE_CHANGE_DURATION.of(BROKER_TIMED_CHANGES))
        self._isr = IsrMeter()
        store.observers.append(self._store_meter.observe)
        state_changes.add_sink(self._changes.take)
        state_changes.add_sink(self._isr.take)

    async def collect(
        self, figures: BrokerCollector, is_topic: Callable[[str], bool], sheet: Sheet
    ) -> None:
        self.requests.forget_topics_but(is_topic)
        self.requests.tell(sheet)
        self._changes.tell(sheet)
        self._isr.tell(sheet)
        self._store_meter.tell(sheet, self._store.health)
        await figures.collect(sheet)
