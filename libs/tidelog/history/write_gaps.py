"""The longest times without a successful send. They are reported, not judged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple


class WriteGap(NamedTuple):
    """The time between two successful sends, from the first attempt, or to the last event."""

    begin_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.begin_ms


NO_GAP = WriteGap(0, 0)


def longest_gap(times_ms: Sequence[int]) -> WriteGap:
    """`times_ms`: in ascending order."""
    begin, end = max(
        pairwise(times_ms),
        key=lambda pair: pair[1] - pair[0],
        default=NO_GAP,
    )
    return WriteGap(begin, end)


def longest_gap_around(times_ms: Sequence[int], event_ms: int, next_ms: int | None) -> WriteGap:
    """Returns the longest gap that contains the event, or that begins after it and before the next
    event."""
    first = max(1, bisect_right(times_ms, event_ms))
    if next_ms is None:
        beyond = len(times_ms)
    else:
        beyond = max(first + 1, bisect_right(times_ms, next_ms) + 1)
    return longest_gap(times_ms[first - 1 : beyond])


class Window(NamedTuple):
    """The time from an event to the next one, if there is one."""

    event_ms: int
    next_ms: int | None


def longest_gaps(
    times_ms: Iterable[int], windows: Sequence[Window] = ()
) -> tuple[WriteGap, list[WriteGap]]:
    """Returns what `longest_gap` returns, and `longest_gap_around` for each window. The times are
    ascending and distinct, and are not kept."""
    longest, around = NO_GAP, [NO_GAP] * len(windows)
    to_come = sorted(range(len(windows)), key=lambda index: windows[index].event_ms, reverse=True)
    # Indexes of windows that have begun and not ended.
    current: list[int] = []
    for begin_ms, end_ms in pairwise(times_ms):
        gap = WriteGap(begin_ms, end_ms)
        longest = _longer(longest, gap)
        begun = []
        while to_come and windows[to_come[-1]].event_ms < end_ms:
            begun.append(to_come.pop())
        # The first gap after an event belongs to it, whatever the next event is.
        current = [index for index in current if _reaches(windows[index], begin_ms)] + begun
        for index in current:
            around[index] = _longer(around[index], gap)
    return longest, around


def _reaches(window: Window, begin_ms: int) -> bool:
    return window.next_ms is None or begin_ms <= window.next_ms


def _longer(one: WriteGap, other: WriteGap) -> WriteGap:
    return other if other.length_ms > one.length_ms else one
