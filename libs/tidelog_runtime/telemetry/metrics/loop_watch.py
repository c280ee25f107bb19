"""Measures the delay of the event loop's timers, and the time since the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog_runtime.telemetry.metrics.recording import Distributions
from tidelog_runtime.telemetry.metrics.service_catalogue import EVENT_LOOP_LAG

INTERVAL_S = 0.5


class LoopWatch:
    """Measures one event loop.

    - `seconds`: a monotonic clock.
    - `silent_seconds`: can be read from another thread.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.lag = Distributions(EVENT_LOOP_LAG)
        self._seconds = seconds
        self._due = seconds()

    @property
    def silent_seconds(self) -> float:
        return max(0.0, self._seconds() - self._due)

    async def run(self) -> None:
        observe = self.lag.of().observe
        while True:
            self._due = self._seconds() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            observe(max(0.0, self._seconds() - self._due))
