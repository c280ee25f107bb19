"""The client's source of time; it waits only through asyncio.

This protocol is separate from that of the services, because the client does not depend on them.
Any clock with these two methods fits both.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """Returns milliseconds that only increase, from an arbitrary zero."""

    def wall_ms(self) -> int:
        """Returns milliseconds since 1970 (UTC), which may jump."""


class SystemClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
