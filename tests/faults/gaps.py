"""The time without a successful write, by partition and fault, from the times of acknowledgements.
Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tidelog.history.write_gaps import NO_GAP, WriteGap
from tidelog.model import TopicPartition

# For each partition, in order.
Successes = Mapping[TopicPartition, Sequence[int]]


class Window(NamedTuple):
    """The time of a fault and its consequences.

    From its beginning until the cluster was intact again and idle. Times of one monotonic clock."""

    begin_ms: int
    end_ms: int


class PartitionGap(NamedTuple):
    gap: WriteGap
    partition: TopicPartition | None


NOWHERE = PartitionGap(NO_GAP, None)


def gap_in(times_ms: Sequence[int], window: Window, until_ms: int) -> WriteGap:
    """The longest time between two successes that touches the window.

    Before the first success nothing is known. After the last one the gap lasts, because writes were
    tried. The gap is cut off at `until_ms`, the end of the load or of the period in question."""
    first = bisect_right(times_ms, window.begin_ms) - 1
    last = bisect_left(times_ms, window.end_ms)
    longest = NO_GAP
    for index in range(max(first, 0), min(last, len(times_ms))):
        begin = times_ms[index]
        end = min(times_ms[index + 1], until_ms) if index + 1 < len(times_ms) else until_ms
        if end - begin > longest.length_ms:
            longest = WriteGap(begin, end)
    return longest


def worst_in(successes: Successes, window: Window, until_ms: int) -> PartitionGap:
    """The worst gap of all partitions: a fault that stops one of them stops its users."""
    worst = NOWHERE
    for partition, times in sorted(successes.items()):
        gap = gap_in(times, window, until_ms)
        if gap.length_ms > worst.gap.length_ms:
            worst = PartitionGap(gap, partition)
    return worst


def ordinary(successes: Successes, windows: Sequence[Window], load: Window) -> PartitionGap:
    """The worst gap during the load that no fault's window touches."""
    quiet: list[Window] = []
    begin = load.begin_ms
    for window in sorted(windows):
        if window.begin_ms > begin:
            quiet.append(Window(begin, window.begin_ms))
        begin = max(begin, window.end_ms)
    if load.end_ms > begin:
        quiet.append(Window(begin, load.end_ms))
    worst = NOWHERE
    for partition, times in sorted(successes.items()):
        for window in quiet:
            # Both ends lie within; a gap that began or ended in a fault's window belongs to that
            # fault.
            inside = times[bisect_left(times, window.begin_ms) : bisect_right(times, window.end_ms)]
            for before, after in pairwise(inside):
                if after - before > worst.gap.length_ms:
                    worst = PartitionGap(WriteGap(before, after), partition)
    return worst
