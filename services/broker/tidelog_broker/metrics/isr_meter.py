"""Counts the ISR changes that this broker made as a leader. A sink of `StateChangeLog`."""

from __future__ import annotations

from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog_runtime.telemetry.metrics import broker_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.recording import Counts
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot


class IsrMeter:
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

    def tell(self, snapshot: MetricsSnapshot) -> None:
        snapshot.set_counters(self._shrinks)
        snapshot.set_counters(self._expands)
