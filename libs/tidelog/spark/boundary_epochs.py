"""Leader epochs at the boundaries of tasks. With them a task detects that its log is not the one
that was planned, or that the preceding task has read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Protocol

from tidelog.errors import FINAL_ANSWERS, TidelogError
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.spark.planning import OffsetRange
from tidelog.spark.stream_offsets import ReadTo


class EpochLookups(Protocol):
    async def epochs_before(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]: ...


async def with_boundary_epochs(
    parts: Sequence[OffsetRange], lookups: EpochLookups
) -> list[OffsetRange]:
    """Returns the parts with the leader epochs at their boundaries.

    The parts of a partition must follow each other. Each partition has one request at a time.
    """
    edges = {
        partition: _Edges(list(of_partition))
        for partition, of_partition in groupby(parts, lambda part: part.partition)
    }
    while offsets := {p: one.query_offset() for p, one in edges.items() if one.is_incomplete}:
        try:
            epochs = await lookups.epochs_before(offsets)
        except TidelogError as error:
            if error.code not in FINAL_ANSWERS:
                raise
            # A topic or partition is gone; its task reports it.
            return list(parts)
        for partition, epoch in epochs.items():
            edges[partition].add_epoch(offsets[partition], epoch)
    return [part for one in edges.values() for part in one.parts()]


class _Edges:
    """The boundaries of one partition's parts. Leader epochs never decrease along a log: boundaries
    between two of the same epoch have that epoch, without a request."""

    def __init__(self, parts: Sequence[OffsetRange]) -> None:
        self._parts = parts
        start, end = parts[0].start, parts[-1].end
        self._offsets = [start.offset, *(part.end.offset for part in parts)]
        # None: still unknown.
        self._epochs: list[int | None] = [start.leader_epoch, *[None] * len(parts)]
        if end.leader_epoch != NO_EPOCH:
            self.add_epoch(end.offset, end.leader_epoch)

    @property
    def is_incomplete(self) -> bool:
        return None in self._epochs

    def query_offset(self) -> int:
        """Returns the next offset before which the epoch is needed: the end first, then by
        bisection."""
        if self._epochs[-1] is None:
            return self._offsets[-1]
        after = self._epochs.index(None)
        end = next(n for n in range(after, len(self._epochs)) if self._epochs[n] is not None)
        return self._offsets[(after + end) // 2]

    def add_epoch(self, offset: int, epoch: int) -> None:
        self._epochs[self._offsets.index(offset)] = epoch
        known = [n for n, found in enumerate(self._epochs) if found is not None]
        for first, last in pairwise(known):
            if self._epochs[first] == self._epochs[last]:
                self._epochs[first:last] = [self._epochs[first]] * (last - first)

    def parts(self) -> Iterator[OffsetRange]:
        boundaries = [
            ReadTo(offset, NO_EPOCH if epoch is None else epoch)
            for offset, epoch in zip(self._offsets, self._epochs, strict=True)
        ]
        for part, (start, end) in zip(self._parts, pairwise(boundaries), strict=True):
            yield part._replace(start=start, end=end)
