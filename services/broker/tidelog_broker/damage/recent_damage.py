"""Replicas of this broker that were recently damaged and repaired. A disk that has changed bytes
once may do so again, and `explain` has no other evidence of a repaired damage. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.inspection.state_reports import RepairedDamage
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog_runtime.clock import Clock

REPORTED_FOR_MS = 3_600_000
# Beyond this number the oldest are dropped.
MAX_REPAIRED = 100


class RecentDamage:
    """A sink of a `StateChangeLog`, for the lifetime of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Wall-clock time and reason; bounded by the number of replicas.
        self._found: dict[TopicPartition, tuple[int, str]] = {}
        # With the monotonic time of the repair, oldest first.
        self._repaired: dict[TopicPartition, tuple[int, RepairedDamage]] = {}

    def take(self, change: StateChange) -> None:
        if change.stage is not Stage.COMPLETED or not change.topic:
            return
        name = TopicPartition(change.topic, change.partition)
        if change.kind is Kind.REPLICA_DAMAGED:
            self._found[name] = (change.time_ms, str(change.details.get("why", "")))
            # A start that could open the log has cut it already, and reports no repair.
            if change.details.get("at_start") and change.cause is Cause.CORRUPT:
                self._end(name, change.time_ms)
        elif change.kind is Kind.REPLICA_REPAIRED:
            self._end(name, change.time_ms)
        elif change.kind in (Kind.DELETE, Kind.STOP):
            self._found.pop(name, None)

    def _end(self, name: TopicPartition, at_ms: int) -> None:
        found = self._found.pop(name, None)
        if found is None:
            return
        found_at_ms, reason = found
        self._repaired.pop(name, None)
        repaired = RepairedDamage(*name, found_at_ms, at_ms, reason)
        self._repaired[name] = (self._clock.monotonic_ms(), repaired)
        if len(self._repaired) > MAX_REPAIRED:
            del self._repaired[next(iter(self._repaired))]

    @property
    def repaired(self) -> Sequence[RepairedDamage]:
        since_ms = self._clock.monotonic_ms() - REPORTED_FOR_MS
        return [damage for at_ms, damage in self._repaired.values() if at_ms > since_ms]
