"""Limits on consequences of broken connections: fast removals of brokers, and events. No I/O."""

from __future__ import annotations

from collections import deque

from tidelog_controller.state.events import DialOutcome

# A live broker whose connection keeps breaking (behind a proxy, for example) is not removed more
# often than this; beyond it only its lease decides.
MAX_FAST_REMOVALS = 2
FAST_REMOVAL_WINDOW_MS = 60_000
# An unchanged condition is reported again after this time.
REPORT_AGAIN_MS = 60_000


class BrokenConnections:
    def __init__(self) -> None:
        self._removals: dict[int, deque[int]] = {}  # broker id to times of fast removals
        # The last reported incarnation and outcome of each broker, and when.
        self._reported: dict[int, tuple[int, DialOutcome, int]] = {}

    def may_remove(self, broker_id: int, now_ms: int) -> bool:
        """Whether a fast removal is allowed; if so, it is counted."""
        removals = self._removals.setdefault(broker_id, deque(maxlen=MAX_FAST_REMOVALS))
        oldest_counts = removals and now_ms - removals[0] < FAST_REMOVAL_WINDOW_MS
        if len(removals) == MAX_FAST_REMOVALS and oldest_counts:
            return False
        removals.append(now_ms)
        return True

    def is_news(self, broker_id: int, broker_epoch: int, dial: DialOutcome, now_ms: int) -> bool:
        """Whether to report it; an unreachable broker is dialled every 2 s and reported seldom."""
        epoch, before, at_ms = self._reported.get(broker_id, (0, None, 0))
        same = epoch == broker_epoch and before is dial
        if same and now_ms - at_ms < REPORT_AGAIN_MS:
            return False
        self._reported[broker_id] = (broker_epoch, dial, now_ms)
        return True
