"""Time as a parameter, so that the simulator can run the same code on its own clock.

Waiting goes through the event loop (`asyncio.sleep`, `loop.call_later`), which the
simulator replaces; reading the time goes through a `Clock`.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """Milliseconds that only grow; their zero means nothing."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 (UTC); may jump."""


class SystemClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
