"""The events of a clock in doubt."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.state_changes.event import NO_CHANGE, Cause, Kind, Stage
from tidelog_broker.clock_check import Doubt
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class ClockDoubtEvents:
    """Emits that deletion by age pauses because of a doubtful clock, and that it resumes."""

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], state_changes: StateChangeLog
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._state_changes = state_changes
        self._change = NO_CHANGE

    def emit(self, doubt: Doubt, end: str) -> None:
        """`end`: why the doubt ended; empty: it has begun."""
        if not end:
            self._change = self._state_changes.condition_change("clock", Cause.NONE)
        self._state_changes.emit(
            Kind.CLOCK_IN_DOUBT,
            Stage.COMPLETED if end else Stage.REQUESTED,
            change=self._change,
            broker=self._broker_id,
            broker_epoch=self._broker_epoch(),
            details={"reason": doubt.reason, "ahead_ms": doubt.ahead_ms, "end": end},
        )
