"""Crashes of one service that follow each other, as in a crash loop. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.inspection.controller_reports import ServiceCrashes

# A crash belongs to the series of the one before if it follows within this time. Supervisors
# restart a process sooner, as a rule; one that is not back by then is reported as gone.
MAX_CRASH_GAP_MS = 120_000


class CrashSeries(NamedTuple):
    """`since_ms`, `last_ms`: when the first and the last crash were noticed. They are times of the
    same clock as those that the methods take."""

    length: int = 0
    since_ms: int = 0
    last_ms: int = 0

    def extended(self, at_ms: int) -> CrashSeries:
        """Returns the series with one more crash; a new series if this one is over.

        >>> CrashSeries().extended(5_000).extended(15_000)
        CrashSeries(length=2, since_ms=5000, last_ms=15000)
        >>> CrashSeries(7, 5_000, 90_000).extended(210_001)
        CrashSeries(length=1, since_ms=210001, last_ms=210001)
        """
        if self.is_over(at_ms):
            return CrashSeries(1, at_ms, at_ms)
        return CrashSeries(self.length + 1, self.since_ms, at_ms)

    def is_over(self, now_ms: int) -> bool:
        return not self.length or now_ms - self.last_ms > MAX_CRASH_GAP_MS

    def described(
        self, role: str, service_id: int, address: str, now_ms: int, reason: str = ""
    ) -> ServiceCrashes:
        since_ms, last_ms = (max(0, now_ms - at_ms) for at_ms in (self.since_ms, self.last_ms))
        return ServiceCrashes(role, service_id, address, self.length, since_ms, last_ms, reason)
