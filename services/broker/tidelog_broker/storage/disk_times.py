"""Measures how slow this broker's disk has recently been."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NamedTuple

from tidelog_broker.log.disk import SYNC
from tidelog_runtime.clock import Clock
from tidelog_runtime.pressure.detection import SLOW_DISK_MS

# Syncs of this window are counted. Fewer than MIN_SYNCS give no result.
COUNT_WINDOW_MS = 60_000
MIN_SYNCS = 3
MAX_SYNCS = 512
# Operations of at least this duration are kept with their times. If most are fast, a disk that
# stalls repeatedly shows only in the share of time that it was busy with slow ones.
NOTABLE_MS = 500
MAX_NOTABLE = 1_024
# A disk's time is the longest one such that operations of at least this time were running for
# BUSY_MS of the last BUSY_WINDOW_MS. A slow disk shows within seconds, and no single operation
# shorter than BUSY_MS makes a slow disk.
BUSY_MS = 5_000
BUSY_WINDOW_MS = 20_000
# For so long after the last slow time the disk stays slow: it may seem fast between two slow
# operations.
HOLD_MS = 10_000

# Begin and end, in milliseconds of the monotonic clock.
Interval = tuple[int, int]


class SlowestOperation(NamedTuple):
    """`ms` is its recent time; 0: unknown."""

    ms: int
    operation: str


class _Operation(NamedTuple):
    name: str
    began_ms: int
    ended_ms: int
    # Without the time in which the process did not run.
    took_ms: int


class _Timed:
    """A class, because a generator is several times slower and each append is timed."""

    __slots__ = ("_name", "_number", "_times")

    def __init__(self, times: DiskTimes, name: str) -> None:
        self._times = times
        self._name = name
        self._number = 0

    def __enter__(self) -> None:
        self._number = self._times.begin(self._name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._times.end(self._number)


class DiskTimes:
    """Measures operations that run in several threads.

    Each operation uses its own `timed`, which is not entered twice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Name and begin of each running operation, by number.
        self._running: dict[int, tuple[str, int]] = {}
        self._numbers = 0
        self._syncs: deque[Interval] = deque(maxlen=MAX_SYNCS)
        self._notable: deque[tuple[str, int, int]] = deque(maxlen=MAX_NOTABLE)
        # When a slow operation was last seen, and which.
        self._held: tuple[int, SlowestOperation] | None = None

    def timed(self, name: str) -> AbstractContextManager[None]:
        return _Timed(self, name)

    def begin(self, name: str) -> int:
        began_ms = self._clock.monotonic_ms()
        with self._lock:
            self._numbers += 1
            self._running[self._numbers] = (name, began_ms)
            return self._numbers

    def end(self, number: int) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            name, began_ms = self._running.pop(number)
            if name == SYNC:
                self._syncs.append((began_ms, now_ms))
            if now_ms - began_ms >= NOTABLE_MS:
                self._notable.append((name, began_ms, now_ms))

    def slowest(self, gaps: Sequence[Interval] = ()) -> SlowestOperation:
        """Returns the operation at which the disk is slowest.

        `gaps`: when the process did not run, which is no fault of the disk."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            while self._syncs and self._syncs[0][1] < now_ms - COUNT_WINDOW_MS:
                self._syncs.popleft()
            syncs = tuple(self._syncs)
            notable = list(self._notable)
            notable += [(name, began, now_ms) for name, began in self._running.values()]
        operations = [
            _Operation(name, began, ended, ended - began - _overlap_ms((began, ended), gaps))
            for name, began, ended in notable
        ]
        found = [self._hold(_busy_with(operations, now_ms, gaps), now_ms)]
        if len(syncs) >= MIN_SYNCS:
            took = [ended - began - _overlap_ms((began, ended), gaps) for began, ended in syncs]
            found.append(SlowestOperation(int(statistics.median(took)), SYNC))
        return max(found, key=lambda each: (_is_slow_beside_syncs(each), each.ms))

    def _hold(self, busy: SlowestOperation, now_ms: int) -> SlowestOperation:
        if busy.ms >= SLOW_DISK_MS:
            self._held = (now_ms, busy)
        elif self._held is not None and now_ms - self._held[0] < HOLD_MS:
            return self._held[1]
        return busy


def _is_slow_beside_syncs(found: SlowestOperation) -> bool:
    return found.operation != SYNC and found.ms >= SLOW_DISK_MS


def _busy_with(
    operations: Sequence[_Operation], now_ms: int, gaps: Sequence[Interval]
) -> SlowestOperation:
    """Returns the slowest operation; if syncs and others are slow, one of the others, because syncs
    run in threads of their own."""
    others = [o for o in operations if o.name != SYNC]
    slowest = _slowest(others, now_ms - BUSY_WINDOW_MS, gaps)
    if slowest.ms >= SLOW_DISK_MS:
        return slowest
    return _slowest(operations, now_ms - BUSY_WINDOW_MS, gaps)


def _slowest(
    operations: Sequence[_Operation], since_ms: int, gaps: Sequence[Interval]
) -> SlowestOperation:
    """Returns the longest time such that operations of at least this time were running for
    BUSY_MS."""
    slowest = sorted(
        (o for o in operations if o.took_ms >= NOTABLE_MS and o.ended_ms > since_ms),
        key=lambda o: -o.took_ms,
    )
    low, high = 0, len(slowest)  # the index in `slowest` up to which it takes them
    while low < high:
        middle = (low + high) // 2
        intervals = [(o.began_ms, o.ended_ms) for o in slowest[: middle + 1]]
        if _covered_ms(intervals, since_ms, gaps) >= BUSY_MS:
            high = middle
        else:
            low = middle + 1
    if low == len(slowest):
        return SlowestOperation(0, "")
    return SlowestOperation(slowest[low].took_ms, slowest[low].name)


def _covered_ms(intervals: Iterable[Interval], since_ms: int, gaps: Sequence[Interval]) -> int:
    covered_ms, done_ms = 0, since_ms
    for began_ms, ended_ms in sorted(intervals):
        new = (max(began_ms, done_ms), ended_ms)
        if new[1] > new[0]:
            covered_ms += new[1] - new[0] - _overlap_ms(new, gaps)
            done_ms = ended_ms
    return covered_ms


def _overlap_ms(interval: Interval, gaps: Iterable[Interval]) -> int:
    """`gaps` do not overlap each other."""
    began, ended = interval
    return sum(max(0, min(ended, end) - max(began, start)) for start, end in gaps)
