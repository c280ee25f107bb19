"""Which offsets a batch reads, and how they are split into tasks. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.spark.stream_offsets import ReadTo


class OffsetRange(NamedTuple):
    """From `start` on and before `end`, of a topic that has this id. `create_revision`: a later
    topic of the same name has a greater one."""

    partition: TopicPartition
    topic_id: str
    create_revision: int
    start: ReadTo
    end: ReadTo

    @property
    def size(self) -> int:
        return self.end.offset - self.start.offset


def limited(
    sizes: Mapping[TopicPartition, int], max_offsets: int, turn: int
) -> dict[TopicPartition, int]:
    """How much to take of each, in proportion to what there is: `max_offsets` in all, or
    everything. Each that has something gets something; where there is not even one for each,
    they come round as `turn` grows."""
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
    # One for each; what is left in proportion to what then is left of each.
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
    """At least `min_partitions` ranges where there are so many records, large ones in more parts
    than small ones, and none of more than `max_records`. Empty ones are left out. The same ranges
    are always split alike. What lies between two parts has no leader epoch yet
    (`edge_epochs`)."""
    full = [one for one in ranges if one.size > 0]
    counts = _part_counts([one.size for one in full], min_partitions or 0)
    parts: list[OffsetRange] = []
    for one, count in zip(full, counts, strict=True):
        if max_records is not None:
            count = max(count, -(-one.size // max_records))
        parts += _cut(one, count)
    return parts


def _part_counts(sizes: Sequence[int], least: int) -> list[int]:
    """Into how many parts each is cut, one record at least in each part."""
    total = sum(sizes)
    counts = [1] * len(sizes)
    if least > len(sizes):
        counts = [min(max(round(size * least / total), 1), size) for size in sizes]
    missing = min(least, total) - sum(counts)
    if missing <= 0:
        return counts
    # Rounding has left less than one for each: those with the largest parts are cut once more.
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
