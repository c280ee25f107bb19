"""Reads state changes from log lines of services, which contain other lines, too. Pure."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable

from tidelog.state_changes import json_form
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.json_form import NotAStateChangeError
from tidelog.state_changes.tracing import TraceScope

# Maximum number of events from all files together. The oldest ones by time beyond it are dropped
# and counted, whichever file is read first.
MAX_EVENTS = 500_000
# Contained in every line of a state change, so that other lines need no parsing.
_MARK = json_form.EVENT.encode()
_WHOLE = TraceScope()


class LogLines:
    """Takes lines of log files, in any order, and counts those that it leaves out."""

    def __init__(self, scope: TraceScope = _WHOLE, max_events: int = MAX_EVENTS) -> None:
        """Creates an empty collection for a scope; other events are dropped at once."""
        self._scope = scope
        self._max_events = max_events
        # A heap with the oldest event first. The line number decides between events of one time.
        self._events: list[tuple[int, int, StateChange]] = []
        self.lines = 0
        self.skipped = 0  # lines of other kinds
        self.malformed = 0  # state changes by their mark, but cut, wrong or of a newer version
        self.left_out = 0  # in the scope, but older than the events that are kept

    @property
    def events(self) -> list[StateChange]:
        """The events in the order in which they were read."""
        return [change for _, _, change in sorted(self._events, key=lambda held: held[1])]

    def take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.lines += 1
            self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        if _MARK not in line:
            self.skipped += 1
            return
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            self.malformed += 1
            return
        if not isinstance(value, dict) or value.get("event") != json_form.EVENT:
            self.skipped += 1
            return
        try:
            change = json_form.from_object(value)
        except NotAStateChangeError:
            self.malformed += 1
            return
        if not self._scope.asks_for(change):
            return
        held = (change.time_ms, self.lines, change)
        if len(self._events) < self._max_events:
            heapq.heappush(self._events, held)
        else:
            heapq.heappushpop(self._events, held)
            self.left_out += 1
