"""Ranges of offsets. Pure.

Records are identified by topic id, partition, leader epoch and offset (rule
`archive-records-known-without-checkpoint`). Spans of these therefore describe what was archived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    """Offsets from `first` (inclusive) to `end` (exclusive)."""

    first: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.first, 0)


class LogId(NamedTuple):
    """A partition of a topic. A topic that is created again with the same name has another id."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def slices(spans: Mapping[LogId, Span], most: int) -> Iterator[dict[LogId, Span]]:
    """Yields slices that together cover the spans, of at most `most` offsets each.

    Each slice has all logs with offsets left, because they are read concurrently.
    """
    left = {log: span for log, span in spans.items() if span.size}
    while left:
        share = max(most // len(left), 1)
        cut = {log: min(span.first + share, span.end) for log, span in left.items()}
        yield {log: Span(span.first, cut[log]) for log, span in left.items()}
        left = {log: Span(cut[log], s.end) for log, s in left.items() if cut[log] < s.end}


def united(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Returns the union: ordered, without empty, adjacent or overlapping spans."""
    found: list[Span] = []
    for span in sorted(span for span in spans if span.size):
        if found and span.first <= found[-1].end:
            found[-1] = Span(found[-1].first, max(found[-1].end, span.end))
        else:
            found.append(span)
    return tuple(found)


def without(whole: Span, parts: Iterable[Span]) -> tuple[Span, ...]:
    """Returns the parts of `whole` that are in none of `parts`."""
    left: list[Span] = []
    at = whole.first
    for part in united(parts):
        if part.first >= whole.end:
            break
        if part.first > at:
            left.append(Span(at, part.first))
        at = max(at, part.end)
    if at < whole.end:
        left.append(Span(at, whole.end))
    return tuple(left)


def remaining(spans: Iterable[Span], parts: Iterable[Span]) -> tuple[Span, ...]:
    """Returns the parts of `spans`, which do not overlap, that are in none of `parts`."""
    listed = list(parts)
    return united(left for span in spans for left in without(span, listed))


def common(whole: Span, parts: Iterable[Span]) -> tuple[Span, ...]:
    """Returns the parts of `whole` that are in at least one of `parts`."""
    cut = (Span(max(part.first, whole.first), min(part.end, whole.end)) for part in parts)
    return united(cut)


def fewer(spans: Sequence[Span], most: int) -> tuple[Span, ...]:
    """Returns at most `most` spans: closes the smallest gaps between `spans`, which are ordered."""
    gaps = sorted(
        (second.first - first.end, number) for number, (first, second) in enumerate(pairwise(spans))
    )
    closed = {number for _, number in gaps[: max(len(spans) - most, 0)]}
    found: list[Span] = []
    for number, span in enumerate(spans):
        if number - 1 in closed:
            found[-1] = Span(found[-1].first, span.end)
        else:
            found.append(span)
    return tuple(found)


def by_epoch(read: Span, first_offsets: Sequence[tuple[int, int]]) -> dict[int, Span]:
    """Returns the offsets of each leader epoch within a read range.

    - `first_offsets`: (leader epoch, offset of its first record), in order.

    Offsets without a record belong to the epoch before them, or to the first one.
    """
    starts = [read.first, *(offset for _, offset in first_offsets[1:])]
    ends = [*starts[1:], read.end]
    epochs = [epoch for epoch, _ in first_offsets]
    return {
        epoch: Span(start, end) for epoch, start, end in zip(epochs, starts, ends, strict=False)
    }
