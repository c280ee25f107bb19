"""The pace of the scrub: how long it pauses after each chunk, and whether its pass ends in time."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.inspection.resource_pressures import SCRUB
from tidelog_broker.storage.scrub_state import ScrubState
from tidelog_runtime.pressure.records import Pressure

# The lowest rate. A pass over little data is shorter than the period.
MIN_BYTES_PER_SECOND = 64 << 10
MAX_PAUSE_S = 60.0
# The setting counts the thread and the code around it, which uses about as much again.
_THREAD_SHARE = 0.5
# A pass is overdue if it takes this much of its period. A restart may delay it a little.
OVERDUE_PERCENT = 125
# The speed of a pass is known after this time of checks and pauses.
MIN_MEASURED_S = 600.0
# A pass that has failed for this time does not continue by itself.
STOPPED_AFTER_MS = 600_000

BY_RATE = "scrub_bytes_per_second bounds its rate"
BY_CPU = "scrub_cpu_percent bounds its CPU time"
BY_DISK = "reads from the disk take most of its time"
INTERRUPTED = "the broker did not run during a part of it, or its logs grew"
_BY_PERIOD = "by the period"


class ScrubDelay(NamedTuple):
    """A pass that takes too long, in milliseconds. `expected_ms`: of the whole pass."""

    expected_ms: int
    period_ms: int
    since_ms: int
    reason: str

    def pressure(self) -> Pressure:
        """Returns what `explain` reports about it."""
        return Pressure(SCRUB, self.expected_ms, self.period_ms, self.since_ms, self.reason)


class ScrubPace:
    """Computes the pauses, and from them the speed of the running pass.

    - `period_ms`: of one pass; 0: no pass begins by itself, and none is overdue.
    - `cpu_percent`: of a processor, for the scrub and the code around it.
    """

    def __init__(self, *, period_ms: int, max_bytes_per_second: int, cpu_percent: float) -> None:
        self.period_ms = period_ms
        self._max_bytes_per_second = max_bytes_per_second
        self._cpu_share = cpu_percent / 100 * _THREAD_SHARE
        self._failure = ""
        self._failing_since_ms = 0
        self.pass_begins()

    def pass_begins(self) -> None:
        self._bytes = 0
        self._seconds: dict[str, float] = {}

    def failed(self, error: str, now_ms: int) -> None:
        """The pass cannot continue. Times are of the monotonic clock."""
        if not self._failure:
            self._failing_since_ms = now_ms
        self._failure = error

    def pause_s(self, checked: int, cpu_s: float, took_s: float, total_bytes: int) -> float:
        """Returns the pause after a chunk.

        - `checked`: bytes of the chunk; they took `cpu_s` of CPU time, and `took_s` in total.
        - `total_bytes`: of all logs.
        """
        self._failure = ""
        needed = total_bytes * 1000 / self.period_ms if self.period_ms else 0
        wanted = max(needed, MIN_BYTES_PER_SECOND)
        rate = min(wanted, self._max_bytes_per_second)
        by_rate = _BY_PERIOD if rate == wanted else BY_RATE
        needs = {by_rate: checked / rate, BY_CPU: cpu_s / self._cpu_share, BY_DISK: took_s}
        slowest = max(needs, key=lambda bound: needs[bound])
        self._bytes += checked
        self._seconds[slowest] = self._seconds.get(slowest, 0.0) + needs[slowest]
        return min(needs[slowest] - took_s, MAX_PAUSE_S)

    def delay(
        self, state: ScrubState, total_bytes: int, wall_ms: int, monotonic_ms: int
    ) -> ScrubDelay | None:
        """Returns by how much the running pass exceeds its period; None: it does not."""
        if not self.period_ms or state.key is None:
            return None
        elapsed_ms = max(wall_ms - state.pass_began_ms, 0)
        if self._failure and monotonic_ms - self._failing_since_ms >= STOPPED_AFTER_MS:
            stopped = f"it has stopped: {self._failure}"
            return ScrubDelay(elapsed_ms, self.period_ms, state.pass_began_ms, stopped)
        seconds = sum(self._seconds.values())
        left_ms = 0
        if self._bytes and seconds >= MIN_MEASURED_S:
            left = max(total_bytes - state.pass_bytes, 0)
            left_ms = int(left * seconds * 1000 / self._bytes)
        if (elapsed_ms + left_ms) * 100 <= self.period_ms * OVERDUE_PERCENT:
            return None
        bound = max(self._seconds, key=lambda bound: self._seconds[bound], default=_BY_PERIOD)
        reason = INTERRUPTED if bound == _BY_PERIOD else bound
        return ScrubDelay(elapsed_ms + left_ms, self.period_ms, state.pass_began_ms, reason)
