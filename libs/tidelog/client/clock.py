"""How the client reads the time; it waits only through asyncio.

A shape of its own, and not the services', because the client needs nothing of theirs;
any clock with these two methods fits both.
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
