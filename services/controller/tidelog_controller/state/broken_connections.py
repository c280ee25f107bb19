"""What broken connections to brokers may lead to: fast removals, within a bound, and how
often they are told of. Pure."""

from __future__ import annotations

from collections import deque

from tidelog_controller.state.events import DialOutcome

# A broker whose connection keeps breaking though it lives (behind a proxy, say) is not
# taken for dead more often than this; then its lease alone decides.
MAX_FAST_REMOVALS = 2
FAST_REMOVAL_WINDOW_MS = 60_000
# What stays as it is, is told again after so long.
TELL_AGAIN_MS = 60_000


class BrokenConnections:
    def __init__(self) -> None:
        self._removals: dict[int, deque[int]] = {}  # broker id to times of fast removals
        # What was told last of a life of a broker, and when.
        self._told: dict[int, tuple[int, DialOutcome, int]] = {}

    def may_remove(self, broker_id: int, now_ms: int) -> bool:
        """Counts as a removal where it is allowed."""
        removals = self._removals.setdefault(broker_id, deque(maxlen=MAX_FAST_REMOVALS))
        oldest_counts = removals and now_ms - removals[0] < FAST_REMOVAL_WINDOW_MS
        if len(removals) == MAX_FAST_REMOVALS and oldest_counts:
            return False
        removals.append(now_ms)
        return True

    def is_news(self, broker_id: int, broker_epoch: int, dial: DialOutcome, now_ms: int) -> bool:
        """A broker that cannot be reached is dialled every two seconds, and told of seldom."""
        epoch, before, at_ms = self._told.get(broker_id, (0, None, 0))
        same = epoch == broker_epoch and before is dial
        if same and now_ms - at_ms < TELL_AGAIN_MS:
            return False
        self._told[broker_id] = (broker_epoch, dial, now_ms)
        return True
