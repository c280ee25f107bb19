"""How late this process's event loop came to what was due, while somebody waited: so much of
the time that an answer took was its own.

A loop is late where a turn of it takes long, and where the process gets no CPU; from inside
the two look alike.
"""

from __future__ import annotations

import asyncio

from tidelog_runtime.clock import Clock

# Between two looks, and only while somebody waits: most waits end before the first.
TICK_MS = 25
# Timers of a loop that is not late come up to so much after their time.
ON_TIME_MS = 5


class LoopLag:
    """`began_ms = lag.begin()`, then wait, then `lag.end(began_ms)` in any case: milliseconds
    by which the loop was late in between. Several may wait at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting = 0
        # Of all looks together, while anybody waited.
        self._late_ms = 0
        self._due_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> int:
        """What `end` is to be given."""
        if self._waiting == 0:
            self._look_again()
        self._waiting += 1
        return self._total_ms()

    def end(self, began_ms: int) -> int:
        late_ms = self._total_ms() - began_ms
        self._waiting -= 1
        if self._waiting == 0 and self._timer is not None:
            self._timer.cancel()
        return late_ms

    def _look(self) -> None:
        self._late_ms = self._total_ms()
        self._look_again()

    def _look_again(self) -> None:
        self._due_ms = self._clock.monotonic_ms() + TICK_MS
        self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._look)

    def _total_ms(self) -> int:
        """With what is overdue now: an answer may be handled before the timer of that time."""
        overdue_ms = self._clock.monotonic_ms() - self._due_ms
        return self._late_ms + (overdue_ms if overdue_ms > ON_TIME_MS else 0)
