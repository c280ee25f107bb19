"""Metrics of the metadata store's answers. Observes a `MeasuredStore`."""

from __future__ import annotations

from tidelog.inspection.model import StoreHealth
from tidelog_runtime.telemetry.metrics.recording import Counts, Distributions
from tidelog_runtime.telemetry.metrics.service_catalogue import (
    STORE_DURATION,
    STORE_ERRORS,
    STORE_UNREACHABLE,
)
from tidelog_runtime.telemetry.metrics.sheet import Sheet


class StoreMeter:
    def __init__(self) -> None:
        self._durations = Distributions(STORE_DURATION)
        self._errors = Counts(STORE_ERRORS)

    def observe(self, operation: str, seconds: float, answered: bool) -> None:
        """Records a request. An unanswered one has no duration: it took as long as its timeout."""
        if answered:
            self._durations.of(operation).observe(seconds)
        else:
            self._errors.add(operation)

    def tell(self, sheet: Sheet, health: StoreHealth) -> None:
        sheet.tell_distributions(self._durations)
        sheet.tell_counts(self._errors)
        away_ms = max(0, health.unreachable_ms, health.rejects_writes_ms)
        sheet.tell(STORE_UNREACHABLE, away_ms / 1000)
