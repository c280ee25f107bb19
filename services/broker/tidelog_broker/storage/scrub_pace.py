"""The pace of the scrub: how long it pauses after each chunk, and whether its bounds allow a pass
within its period."""

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
# A pass is overdue if it takes this much of its period even as fast as its bounds allow. Estimates
# are not exact.
OVERDUE_PERCENT = 125
# The speed of a pass is known after this time of checks and pauses.
MIN_MEASURED_S = 600.0
# A pass that has failed for this time does not continue by itself.
STOPPED_AFTER_MS = 600_000

BY_RATE = "scrub_bytes_per_second bounds its rate"
BY_CPU = "scrub_cpu_percent bounds its CPU time"
BY_DISK = "reads from the disk take most of its time"


class ScrubDelay(NamedTuple):
    """A pass that takes too long, in milliseconds.

    `expected_ms`: of a whole pass as fast as its bounds allow; so far, if it has stopped."""

    expected_ms: int
    period_ms: int
    since_ms: int
    reason: str

    def pressure(self) -> Pressure:
        """Returns what `explain` reports about it."""
        return Pressure(SCRUB, self.expected_ms, self.period_ms, self.since_ms, self.reason)


class ScrubPace:
    """Computes the pauses, and the highest speed that the bounds allow the running pass.

    - `period_ms`: of one pass; 0: no pass begins by itself, and none is overdue.
    - `max_bytes_per_second`: of the scrub.
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
        # What these bytes take at least, by the bound that requires it.
        self._seconds: dict[str, float] = {}

    def failed(self, error: str, now_ms: int) -> None:
        """The pass cannot continue. Times are of the monotonic clock."""
        if not self._failure:
            self._failing_since_ms = now_ms
        self._failure = error

    def pause_s(
        self,
        checked: int,
        cpu_s: float,
        took_s: float,
        state: ScrubState,
        total_bytes: int,
        wall_ms: int,
    ) -> float:
        """Returns the pause after a chunk.

        - `checked`: bytes of the chunk; they took `cpu_s` of CPU time, and `took_s` in total.
        - `state`: after the chunk.
        - `total_bytes`: of all logs.
        """
        self._failure = ""
        needs = {
            BY_RATE: checked / self._max_bytes_per_second,
            BY_CPU: cpu_s / self._cpu_share,
            # No more, because the process may have been paused.
            BY_DISK: min(took_s, MAX_PAUSE_S),
        }
        longest_s = took_s + MAX_PAUSE_S
        slowest = max(needs, key=lambda bound: needs[bound])
        fastest_s = min(needs[slowest], longest_s)
        self._bytes += checked
        self._seconds[slowest] = self._seconds.get(slowest, 0.0) + fastest_s
        allowed_s = self._allowed_s(checked, state, total_bytes, wall_ms)
        return min(max(allowed_s, fastest_s, took_s), longest_s) - took_s

    def _allowed_s(self, checked: int, state: ScrubState, total_bytes: int, wall_ms: int) -> float:
        """Returns how long the chunk may take so that the pass ends with its period.

        After downtime the pass catches up. It is never slower than a whole pass has to be: how much
        is left is an estimate."""
        target_rate = float(MIN_BYTES_PER_SECOND)
        if self.period_ms:
            left_ms = self.period_ms - max(wall_ms - state.pass_began_ms, 0)
            left_bytes = max(total_bytes - state.pass_bytes, 0)
            if left_ms <= 0:
                return 0.0
            even_rate = total_bytes * 1000 / self.period_ms
            target_rate = max(target_rate, even_rate, left_bytes * 1000 / left_ms)
        return checked / target_rate

    def delay(
        self, state: ScrubState, total_bytes: int, wall_ms: int, monotonic_ms: int
    ) -> ScrubDelay | None:
        """Returns by how much a pass exceeds its period because of a bound, or because it has
        stopped; None: it does not.

        A pass that is late for another reason, such as downtime, catches up by itself."""
        if not self.period_ms or state.key is None:
            return None
        if self._failure and monotonic_ms - self._failing_since_ms >= STOPPED_AFTER_MS:
            elapsed_ms = max(wall_ms - state.pass_began_ms, 0)
            stopped = f"it has stopped: {self._failure}"
            return ScrubDelay(elapsed_ms, self.period_ms, state.pass_began_ms, stopped)
        seconds = sum(self._seconds.values())
        longest_ms = self.period_ms * OVERDUE_PERCENT / 100
        if not self._bytes or seconds * 1000 < min(MIN_MEASURED_S * 1000, longest_ms):
            return None
        expected_ms = int(total_bytes * seconds * 1000 / self._bytes)
        if expected_ms <= longest_ms:
            return None
        bound = max(self._seconds, key=lambda bound: self._seconds[bound])
        return ScrubDelay(expected_ms, self.period_ms, state.pass_began_ms, bound)
