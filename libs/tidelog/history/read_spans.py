"""The offsets of one partition that some client read past."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from tidelog.history.loss_marks import LossMarks

# Offsets, both ends included.
Span = tuple[int, int]


class ReadSpan:
    """The offsets that one client read from `lowest` on, without being repositioned."""

    __slots__ = ("lowest", "reached")

    def __init__(self, lowest: int) -> None:
        self.lowest = lowest
        # The lowest and the highest offset that it received in each leader epoch.
        self.reached: dict[int, Span] = {}

    def add(self, lowest: int, highest: int, leader_epoch: int) -> None:
        self.lowest = min(self.lowest, lowest)
        before = self.reached.get(leader_epoch)
        if before is not None:
            lowest, highest = min(before[0], lowest), max(before[1], highest)
        self.reached[leader_epoch] = (lowest, highest)


class ReadSpans:
    """The offsets that clients have read past.

    A client that received a record has read past the records before it in that log. If the record
    was given up, records of later leader epochs may have been written in its place; the client
    could not read those.
    """

    def __init__(self, spans: Iterable[ReadSpan], marks: LossMarks) -> None:
        kept: list[Span] = []
        given_up: dict[int, list[Span]] = {}
        for span in spans:
            for epoch, (lowest, highest) in span.reached.items():
                highest_kept = marks.highest_kept(epoch, lowest, highest)
                if highest_kept is not None:
                    kept.append((span.lowest, highest_kept))
                if highest_kept != highest:
                    given_up.setdefault(epoch, []).append((span.lowest, highest))
        self._kept = merged(kept)
        self._given_up = {epoch: merged(of_epoch) for epoch, of_epoch in given_up.items()}

    def holds(self, offset: int, leader_epoch: int) -> bool:
        """Whether some client read past a record that was written at `offset` in `leader_epoch`."""
        return lies_within(offset, self._kept) or any(
            epoch >= leader_epoch and lies_within(offset, spans)
            for epoch, spans in self._given_up.items()
        )


def merged(spans: list[Span]) -> list[Span]:
    """Returns the spans in order, disjoint."""
    merged: list[Span] = []
    for lowest, highest in sorted(spans):
        if merged and lowest <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], highest))
        else:
            merged.append((lowest, highest))
    return merged


def lies_within(offset: int, spans: list[Span]) -> bool:
    """`spans`: sorted and disjoint, as `merged` returns them."""
    index = bisect_right(spans, offset, key=lambda span: span[0])
    return index > 0 and offset <= spans[index - 1][1]
