"""How long no send succeeded: reported, not judged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Gap(NamedTuple):
    """Between two successful sends, or from the first attempt, or to the last."""

    begin_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.begin_ms


NO_GAP = Gap(0, 0)


def longest_gap(times_ms: Sequence[int]) -> Gap:
    """`times_ms` in order."""
    begin, end = max(
        pairwise(times_ms),
        key=lambda pair: pair[1] - pair[0],
        default=NO_GAP,
    )
    return Gap(begin, end)


def longest_gap_around(times_ms: Sequence[int], event_ms: int, next_ms: int | None) -> Gap:
    """Of the gaps that contain the event or begin after it, and before the next event."""
    first = max(1, bisect_right(times_ms, event_ms))
    if next_ms is None:
        beyond = len(times_ms)
    else:
        beyond = max(first + 1, bisect_right(times_ms, next_ms) + 1)
    return longest_gap(times_ms[first - 1 : beyond])
