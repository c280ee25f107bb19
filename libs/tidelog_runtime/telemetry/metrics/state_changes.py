"""Counts and durations of state changes."""

from __future__ import annotations

from tidelog.state_changes.event import StateChange
from tidelog_runtime.telemetry.metrics.metric import Metric
from tidelog_runtime.telemetry.metrics.recording import Counts, Distributions
from tidelog_runtime.telemetry.metrics.service_catalogue import (
    EVENTS_DROPPED,
    STATE_CHANGE_DURATION,
    STATE_CHANGES,
)
from tidelog_runtime.telemetry.metrics.sheet import Sheet
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class StateChangeMeter:
    """A sink of a `StateChangeLog`.

    - `durations`: STATE_CHANGE_DURATION with the series of this service.
    """

    def __init__(self, log: StateChangeLog, durations: Metric) -> None:
        assert durations.name == STATE_CHANGE_DURATION.name
        self._log = log
        self._counts = Counts(STATE_CHANGES)
        self._durations = Distributions(durations)
        log.add_sink(self.take)

    def take(self, change: StateChange) -> None:
        kind, stage = change.kind.value, change.stage.value
        self._counts.add(kind, stage)
        duration = self._durations.series.get((kind, stage))
        if duration is not None and change.duration_ms >= 0:
            duration.observe(change.duration_ms / 1000)

    def tell(self, sheet: Sheet) -> None:
        sheet.tell_counts(self._counts)
        sheet.tell_distributions(self._durations)
        sheet.tell(EVENTS_DROPPED, self._log.dropped)
