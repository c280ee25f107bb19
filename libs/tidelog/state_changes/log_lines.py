"""State changes out of the log lines of services, which hold other lines besides. Pure."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable

from tidelog.state_changes import json_form
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.json_form import NotAStateChangeError
from tidelog.state_changes.life import TraceScope

# Of all files together; the oldest by time beyond it are left out and counted, whichever file is
# read first.
MAX_EVENTS = 500_000
# What every line of a state change contains, so that others need no parsing.
_MARK = json_form.EVENT.encode()
_WHOLE = TraceScope()


class LogLines:
    """Takes lines as they lie in log files, in any order, and counts what it leaves."""

    def __init__(self, scope: TraceScope = _WHOLE, max_events: int = MAX_EVENTS) -> None:
        """What its life is not told from is left at once."""
        self._scope = scope
        self._max_events = max_events
        # The oldest first; the number, by which lines were read, decides among those at once.
        self._events: list[tuple[int, int, StateChange]] = []
        self.lines = 0
        self.skipped = 0  # no state change, or of a version that this one does not know
        self.malformed = 0  # a state change by its mark, and cut or wrong
        self.left_out = 0  # of the scope, and older than those that are kept

    @property
    def events(self) -> list[StateChange]:
        """As they were read."""
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
