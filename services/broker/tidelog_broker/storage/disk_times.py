"""How long this broker's disk takes for what it is asked, of late."""

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
from tidelog_runtime.pressure.judging import SLOW_DISK_MS

# Syncs are counted over this; fewer say nothing of a disk.
COUNT_WINDOW_MS = 60_000
MIN_SYNCS = 3
MAX_SYNCS = 512
# Operations that take as long are kept with their time: where most are quick, a disk that stops
# again and again shows only in how much of the time it was busy with them.
NOTABLE_MS = 500
MAX_NOTABLE = 1_024
# A disk is as slow as the operations with which it was busy for so much of the last so long: that
# shows within seconds, and no single operation that is shorter makes a slow disk.
BUSY_MS = 5_000
BUSY_WINDOW_MS = 20_000
# A disk that was slow by that is no sooner well: between two slow operations it may seem to be.
HOLD_MS = 10_000

# Begin and end, monotonic.
Interval = tuple[int, int]


class SlowestOperation(NamedTuple):
    """`ms`: how long it takes of late; 0: not known."""

    ms: int
    operation: str


class _Operation(NamedTuple):
    name: str
    began_ms: int
    ended_ms: int
    # Less the time in which the whole process did not run.
    took_ms: int


class _Timed:
    """Written out: a generator takes several times as long, and each append is timed."""

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
    """Operations run in threads, side by side: each is one `timed`, which is not entered twice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Which, and since when, by number.
        self._under_way: dict[int, tuple[str, int]] = {}
        self._numbers = 0
        self._syncs: deque[Interval] = deque(maxlen=MAX_SYNCS)
        self._notable: deque[tuple[str, int, int]] = deque(maxlen=MAX_NOTABLE)
        # What it was slow at, and when that was last seen.
        self._held: tuple[int, SlowestOperation] | None = None

    def timed(self, name: str) -> AbstractContextManager[None]:
        return _Timed(self, name)

    def begin(self, name: str) -> int:
        began_ms = self._clock.monotonic_ms()
        with self._lock:
            self._numbers += 1
            self._under_way[self._numbers] = (name, began_ms)
            return self._numbers

    def end(self, number: int) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            name, began_ms = self._under_way.pop(number)
            if name == SYNC:
                self._syncs.append((began_ms, now_ms))
            if now_ms - began_ms >= NOTABLE_MS:
                self._notable.append((name, began_ms, now_ms))

    def typical(self, gaps: Sequence[Interval] = ()) -> SlowestOperation:
        """What it is slowest at. `gaps`: when the process did not run at all, which is no fault of
        the disk."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            while self._syncs and self._syncs[0][1] < now_ms - COUNT_WINDOW_MS:
                self._syncs.popleft()
            syncs = tuple(self._syncs)
            notable = list(self._notable)
            notable += [(name, began, now_ms) for name, began in self._under_way.values()]
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
    """Other operations before syncs, which run in threads of their own, where both are slow."""
    others = [o for o in operations if o.name != SYNC]
    slowest = _slowest(others, now_ms - BUSY_WINDOW_MS, gaps)
    if slowest.ms >= SLOW_DISK_MS:
        return slowest
    return _slowest(operations, now_ms - BUSY_WINDOW_MS, gaps)


def _slowest(
    operations: Sequence[_Operation], since_ms: int, gaps: Sequence[Interval]
) -> SlowestOperation:
    """The longest time such that operations of it or longer were under way for BUSY_MS."""
    slowest = sorted(
        (o for o in operations if o.took_ms >= NOTABLE_MS and o.ended_ms > since_ms),
        key=lambda o: -o.took_ms,
    )
    low, high = 0, len(slowest)  # how many of the slowest it takes, less one
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
