"""Which offsets a batch reads, and how they are split into tasks. Pure functions."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.spark.stream_offsets import ReadTo


class OffsetRange(NamedTuple):
    """Offsets from `start` to `end` (exclusive) of a topic with this id. A later topic of the same
    name has a greater `create_revision`."""

    partition: TopicPartition
    topic_id: str
    create_revision: int
    start: ReadTo
    end: ReadTo

    @property
    def size(self) -> int:
        return self.end.offset - self.start.offset


def limit_sizes(
    sizes: Mapping[TopicPartition, int], max_offsets: int, turn: int
) -> dict[TopicPartition, int]:
    """Returns how many offsets to take of each partition, in proportion to `sizes`.

    They are `max_offsets` in all, or everything. Each partition with records gets at least one; if
    there are more partitions than `max_offsets`, they take turns as `turn` grows.
    """
    waiting = {partition: size for partition, size in sorted(sizes.items()) if size > 0}
    total = sum(waiting.values())
    if total <= max_offsets:
        return dict(sizes)
    taken = dict.fromkeys(sizes, 0)
    if len(waiting) > max_offsets:
        order = list(waiting)
        first = turn % len(order)
        for partition in (order[first:] + order[:first])[:max_offsets]:
            taken[partition] = 1
        return taken
    # One for each; the spare ones in proportion to what remains of each.
    spare, rest = max_offsets - len(waiting), total - len(waiting)
    given = 0
    for partition, size in waiting.items():
        share = spare * (size - 1) // rest
        taken[partition] = 1 + share
        given += share
    for partition in sorted(waiting, key=lambda p: -(spare * (waiting[p] - 1) % rest)):
        if given == spare:
            break
        if taken[partition] < waiting[partition]:
            taken[partition] += 1
            given += 1
    return taken


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Splits ranges into at least `min_partitions` parts, if there are that many records.

    Large ranges are split into more parts than small ones, and no part has more than
    `max_records`. Empty ranges are left out. The same ranges are always split the same way. The
    boundaries between parts have no leader epoch yet (`boundary_epochs`).
    """
    full = [one for one in ranges if one.size > 0]
    counts = _part_counts([one.size for one in full], min_partitions or 0)
    parts: list[OffsetRange] = []
    for one, count in zip(full, counts, strict=True):
        if max_records is not None:
            count = max(count, -(-one.size // max_records))
        parts += _cut(one, count)
    return parts


def _part_counts(sizes: Sequence[int], least: int) -> list[int]:
    """Returns the number of parts of each range; each part has at least one record."""
    total = sum(sizes)
    counts = [1] * len(sizes)
    if least > len(sizes):
        counts = [min(max(round(size * least / total), 1), size) for size in sizes]
    missing = min(least, total) - sum(counts)
    if missing <= 0:
        return counts
    # Rounding left fewer parts than needed: those with the largest parts get one more.
    largest = [(-sizes[n] / counts[n], n) for n in range(len(sizes))]
    heapq.heapify(largest)
    for _ in range(missing):
        n = largest[0][1]
        counts[n] += 1
        heapq.heapreplace(largest, (-sizes[n] / counts[n], n))
    return counts


def _cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    first = one.start.offset
    edges = [ReadTo(first + one.size * part // count) for part in range(1, count)]
    starts, ends = [one.start, *edges], [*edges, one.end]
    return [one._replace(start=start, end=end) for start, end in zip(starts, ends, strict=True)]
