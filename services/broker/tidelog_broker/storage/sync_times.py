"""How long this broker's disk takes to sync, of late."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog_runtime.clock import Clock

WINDOW_MS = 60_000
# Fewer tell nothing of a disk.
MIN_SYNCS = 3
MAX_SYNCS = 512
# One that is still under way after so long tells enough.
STUCK_MS = 5_000


class SyncTimes:
    """Syncs run in threads, side by side: each is one `timed`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: dict[int, int] = {}  # since when, by number
        self._numbers = 0
        # When it ended, and how long it took.
        self._done: deque[tuple[int, int]] = deque(maxlen=MAX_SYNCS)

    @contextmanager
    def timed(self) -> Iterator[None]:
        with self._lock:
            self._numbers += 1
            number = self._numbers
            began_ms = self._under_way[number] = self._clock.monotonic_ms()
        try:
            yield
        finally:
            now_ms = self._clock.monotonic_ms()
            with self._lock:
                del self._under_way[number]
                self._done.append((now_ms, now_ms - began_ms))

    def typical_ms(self) -> int:
        """The median of what ended within WINDOW_MS, or for how long one is stuck, if that is
        longer; 0: there were too few."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            while self._done and self._done[0][0] < now_ms - WINDOW_MS:
                self._done.popleft()
            took_ms = [took for _, took in self._done]
            oldest_ms = max((now_ms - began for began in self._under_way.values()), default=0)
        median_ms = int(statistics.median(took_ms)) if len(took_ms) >= MIN_SYNCS else 0
        return max(median_ms, oldest_ms if oldest_ms >= STUCK_MS else 0)
