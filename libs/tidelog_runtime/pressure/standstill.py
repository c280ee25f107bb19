"""For how long this process did not run though it was ready to: stopped again and again (cpulimit,
a frozen control group), starved by others, or without a processor of its machine's host. The
kernel counts only what happens within the machine, and no stop at all."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

INTERVAL_MS = 100
# Of a single gap: one long pause is none of a process that gets too little CPU.
MAX_GAP_MS = 2_000
# From here on a gap is a standstill of its own, which is remembered for as long as elections are
# counted (`recent_elections`).
STANDSTILL_MS = 1_000
REMEMBERED_MS = 120_000
MAX_REMEMBERED = 100
# As many as a minute can have.
MAX_GAPS = 300


def gap_ms(elapsed_ms: int, cpu_ms: int) -> int:
    """By how much a sleep of INTERVAL_MS took longer than it should, less the CPU time that the
    process itself used meanwhile; 0: less than another interval. Pure.

    >>> gap_ms(130, 0), gap_ms(950, 100), gap_ms(950, 900), gap_ms(60_000, 0)
    (0, 750, 0, 2000)
    """
    late_ms = late_by_ms(elapsed_ms, cpu_ms)
    return min(late_ms, MAX_GAP_MS) if late_ms >= INTERVAL_MS else 0


def late_by_ms(elapsed_ms: int, cpu_ms: int) -> int:
    """By how much a sleep of INTERVAL_MS took longer than it should, however little. Pure."""
    return elapsed_ms - INTERVAL_MS - cpu_ms


class Standstill(NamedTuple):
    for_ms: int
    ago_ms: int  # since it ended


class StandstillMeter:
    """A thread of its own measures: the event loop is late also when it is only busy."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="standstill", daemon=True)
        # Growing.
        self.total_ms = 0
        # How long each was, and when it ended (monotonic).
        self._standstills: deque[tuple[int, int]] = deque(maxlen=MAX_REMEMBERED)
        # From when to when, shorter ones as well.
        self._gaps: deque[tuple[int, int]] = deque(maxlen=MAX_GAPS)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def recent(self) -> list[Standstill]:
        """Of the last REMEMBERED_MS, the oldest first; at most MAX_REMEMBERED. From any thread."""
        now_ms = _now_ms()
        found = [Standstill(ms, now_ms - ended_ms) for ms, ended_ms in tuple(self._standstills)]
        return [each for each in found if each.ago_ms < REMEMBERED_MS]

    def gaps(self) -> list[tuple[int, int]]:
        """When the process did not run for INTERVAL_MS or longer: begin and end (monotonic, ms)
        of each, the oldest first; at most MAX_GAPS. From any thread."""
        return list(self._gaps)

    def take(self, elapsed_ms: int, cpu_ms: int, now_ms: int) -> None:
        """A sleep of INTERVAL_MS that has just ended."""
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
