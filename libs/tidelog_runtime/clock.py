"""Time as a parameter, so that the simulator runs the same code on its own clock.

Code waits through the event loop (`asyncio.sleep`, `loop.call_later`), which the simulator
replaces, and reads the time through a `Clock`.
"""

from __future__ import annotations

import time
from typing import Protocol

# If the clocks of two brokers differ by more than this, one of them is wrong.
MAX_SKEW_MS = 60_000


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """Returns milliseconds that never decrease; their zero has no meaning."""

    def wall_ms(self) -> int:
        """Returns milliseconds since 1970 (UTC); may jump."""


class SystemClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
