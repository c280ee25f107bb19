"""Crashes of one service that follow each other, as in a crash loop. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.inspection.controller_reports import ServiceCrashes

# A crash belongs to the series of the one before if it follows within this time. Docker and systemd
# restart a process at least that often; a process that waits longer is reported as gone.
MAX_CRASH_GAP_MS = 60_000


class CrashSeries(NamedTuple):
    """`since_ms`, `last_ms`: when the first and the last crash were noticed. They are times of the
    same clock as those that the methods take."""

    count: int = 0
    since_ms: int = 0
    last_ms: int = 0

    def extended(self, at_ms: int) -> CrashSeries:
        """Returns the series with one more crash; a new series if this one is over.

        >>> CrashSeries().extended(5_000).extended(15_000)
        CrashSeries(count=2, since_ms=5000, last_ms=15000)
        >>> CrashSeries(7, 5_000, 90_000).extended(150_001)
        CrashSeries(count=1, since_ms=150001, last_ms=150001)
        """
        if self.is_over(at_ms):
            return CrashSeries(1, at_ms, at_ms)
        return CrashSeries(self.count + 1, self.since_ms, at_ms)

    def is_over(self, now_ms: int) -> bool:
        return not self.count or now_ms - self.last_ms > MAX_CRASH_GAP_MS

    def described(
        self, role: str, service_id: int, address: str, now_ms: int, reason: str = ""
    ) -> ServiceCrashes:
        since_ms, last_ms = (max(0, now_ms - at_ms) for at_ms in (self.since_ms, self.last_ms))
        return ServiceCrashes(role, service_id, address, self.count, since_ms, last_ms, reason)
