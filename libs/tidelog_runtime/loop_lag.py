"""The delay of this process's event loop while calls wait for an answer.

This part of a response time is caused by the process itself. A loop is late if one of its
iterations takes long or if the process gets no CPU; from inside, the two are indistinguishable.
"""

from __future__ import annotations

import asyncio

from tidelog_runtime.clock import Clock

# Interval of the timer, which runs only while a call waits: most waits end before the first tick.
TICK_MS = 25
# Timers of a loop that is not late fire up to this much after their time.
ON_TIME_MS = 5


class LoopLag:
    """Measures the delay of the event loop during a wait.

    Call `began_ms = lag.begin()`, wait, and then call `lag.end(began_ms)` in any case. The
    result is the delay of the loop during the wait, in milliseconds. Waits may overlap.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting = 0
        # Total delay of all ticks, which run only while there are waits.
        self._late_ms = 0
        self._due_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> int:
        """Returns the argument for `end`."""
        if self._waiting == 0:
            self._schedule_tick()
        self._waiting += 1
        return self._total_ms()

    def end(self, began_ms: int) -> int:
        late_ms = self._total_ms() - began_ms
        self._waiting -= 1
        if self._waiting == 0 and self._timer is not None:
            self._timer.cancel()
        return late_ms

    def _tick(self) -> None:
        self._late_ms = self._total_ms()
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        self._due_ms = self._clock.monotonic_ms() + TICK_MS
        self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._tick)

    def _total_ms(self) -> int:
        """Returns the total delay, including that of an overdue tick.

        The loop may handle an answer before the timer that was due earlier.
        """
        overdue_ms = self._clock.monotonic_ms() - self._due_ms
        return self._late_ms + (overdue_ms if overdue_ms > ON_TIME_MS else 0)
