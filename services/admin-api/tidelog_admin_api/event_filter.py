"""Filters for state changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.state_changes.event import Kind, StateChange
from tidelog.state_changes.tracing import TraceScope


class EventFilter(NamedTuple):
    """Selects the state changes that meet all conditions.

    - `partition`: also matches changes of its topic as a whole
    - `broker`: matches changes about the broker and changes that it reports
    - `kinds`: empty: all kinds
    - `since_ms`, `before_ms`: earliest time, and the time before which changes match, in
      milliseconds since 1970
    """

    topic: str = ""
    partition: int | None = None
    broker: int | None = None
    kinds: tuple[Kind, ...] = ()
    since_ms: int = 0
    before_ms: int | None = None

    @property
    def scope(self) -> TraceScope:
        return TraceScope(self.topic, self.partition, self.since_ms)

    def matches(self, change: StateChange) -> bool:
        if change.time_ms < self.since_ms:
            return False
        if self.before_ms is not None and change.time_ms >= self.before_ms:
            return False
        if self.topic and not self.scope.includes(change):
            return False
        if self.kinds and change.kind not in self.kinds:
            return False
        return self.broker is None or self._is_of_broker(change)

    def _is_of_broker(self, change: StateChange) -> bool:
        return change.broker == self.broker or change.service == f"broker-{self.broker}"


class Newest(NamedTuple):
    """The newest changes, and the number of older ones that match."""

    changes: Sequence[StateChange]
    left_out: int


def newest(changes: Iterable[StateChange], event_filter: EventFilter, limit: int) -> Newest:
    """Returns the newest `limit` changes that match, the oldest first.

    Changes of the same millisecond are ordered by the names of their services. A change that
    was reported twice counts once.
    """
    known = {change.identity: change for change in changes if event_filter.matches(change)}
    ordered = sorted(known.values(), key=lambda change: (change.time_ms, change.service))
    kept = ordered[-limit:]
    left_out = len(ordered) - len(kept)
    if left_out and ordered[left_out - 1].time_ms == kept[0].time_ms != kept[-1].time_ms:
        # A client that continues before the first of these would miss others of that millisecond.
        kept = [change for change in kept if change.time_ms > kept[0].time_ms]
    return Newest(kept, len(ordered) - len(kept))
