"""Measures how long this process did not run although it was ready to.

Causes are repeated stops (cpulimit, a frozen control group), starvation by other processes, and
a virtual machine without a processor of its host. The kernel counts only what happens within
the machine, and no stops.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

INTERVAL_MS = 100
# The most that one gap counts: a single long pause does not mean that the process gets too little
# CPU.
MAX_GAP_MS = 2_000
# From this duration on, a gap is a standstill of its own. It is remembered for as long as elections
# are counted (`recent_elections`).
STANDSTILL_MS = 1_000
REMEMBERED_MS = 120_000
MAX_REMEMBERED = 100
# The maximum number of gaps in a minute.
MAX_GAPS = 300


def gap_ms(elapsed_ms: int, cpu_ms: int) -> int:
    """Returns the excess of a sleep of INTERVAL_MS, less the process's own CPU time.

    0: the excess is shorter than another interval. At most MAX_GAP_MS. Pure.

    >>> gap_ms(130, 0), gap_ms(950, 100), gap_ms(950, 900), gap_ms(60_000, 0)
    (0, 750, 0, 2000)
    """
    late_ms = late_by_ms(elapsed_ms, cpu_ms)
    return min(late_ms, MAX_GAP_MS) if late_ms >= INTERVAL_MS else 0


def late_by_ms(elapsed_ms: int, cpu_ms: int) -> int:
    """Returns the excess of a sleep of INTERVAL_MS, less own CPU time, without bounds. Pure."""
    return elapsed_ms - INTERVAL_MS - cpu_ms


class ProcessPause(NamedTuple):
    for_ms: int
    ago_ms: int  # since it ended


class PauseMeter:
    """Measures in a thread of its own, because an event loop is also late when it is only busy.

    `total_ms` is cumulative.
    """

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="standstill", daemon=True)
        self.total_ms = 0
        # Duration and end (monotonic) of each.
        self._standstills: deque[tuple[int, int]] = deque(maxlen=MAX_REMEMBERED)
        # Begin and end of each gap, including those shorter than a standstill.
        self._gaps: deque[tuple[int, int]] = deque(maxlen=MAX_GAPS)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def recent(self) -> list[ProcessPause]:
        """Returns the standstills of the last REMEMBERED_MS, oldest first.

        At most MAX_REMEMBERED. Can be called from any thread.
        """
        now_ms = _now_ms()
        found = [ProcessPause(ms, now_ms - ended_ms) for ms, ended_ms in tuple(self._standstills)]
        return [each for each in found if each.ago_ms < REMEMBERED_MS]

    def gaps(self) -> list[tuple[int, int]]:
        """Returns the gaps of INTERVAL_MS or longer, oldest first.

        Each is a pair of begin and end (monotonic, ms). At most MAX_GAPS. Can be called from
        any thread.
        """
        return list(self._gaps)

    def take(self, elapsed_ms: int, cpu_ms: int, now_ms: int) -> None:
        """Records a sleep of INTERVAL_MS that has just ended."""
        self.total_ms += gap_ms(elapsed_ms, cpu_ms)
        late_ms = late_by_ms(elapsed_ms, cpu_ms)
        if late_ms >= INTERVAL_MS:
            self._gaps.append((now_ms - late_ms, now_ms))
        if late_ms >= STANDSTILL_MS:
            self._standstills.append((late_ms, now_ms))

    def _measure(self) -> None:
        began, cpu_began = time.monotonic(), time.process_time()
        while not self._ended.wait(INTERVAL_MS / 1_000):
            now, cpu_now = time.monotonic(), time.process_time()
            self.take(round((now - began) * 1_000), round((cpu_now - cpu_began) * 1_000), _now_ms())
            began, cpu_began = now, cpu_now


def _now_ms() -> int:
    return round(time.monotonic() * 1_000)
