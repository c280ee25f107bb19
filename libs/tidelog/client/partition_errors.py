"""Decides when a consumer raises the errors of its partitions. No I/O.

An error of a partition is raised once all records that were read before it are returned:

- a new error by the next call, whatever records other partitions have;
- then by each call that finds no records, until the caller seeks or assigns.

A missing partition (its topic was deleted, or it was removed) is confirmed with a broker before
its error is raised: it may exist again by now. Its error ends when the partition exists again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.client.assigned_partition import Assigned
from tidelog.client.retry import Leader
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition


class PartitionErrors:
    """Errors of one consumer. Arguments named `assigned` are all its partitions."""

    def __init__(self) -> None:
        # Partitions whose error no call has raised yet.
        self._new: dict[TopicPartition, Assigned] = {}
        # A partition whose error is due and must be confirmed first.
        self.unconfirmed: TopicPartition | None = None

    def add(self, assigned: Assigned, error: TidelogError) -> None:
        assigned.error = error
        self._new[assigned.partition] = assigned

    def keep(self, assigned: Mapping[TopicPartition, Assigned]) -> None:
        """Forgets partitions that are no longer assigned."""
        self._new = {p: a for p, a in self._new.items() if assigned.get(p) is a}

    def raise_new(self) -> None:
        """Raises an error that no call has raised yet."""
        self.unconfirmed = None
        if self._new:
            self._new = {p: a for p, a in self._new.items() if a.error is not None}
            self._raise_first(self._new.values())

    def raise_any(self, assigned: Iterable[Assigned]) -> None:
        """Raises an error, for a call that finds no records."""
        self._raise_first(assigned)

    def _raise_first(self, partitions: Iterable[Assigned]) -> None:
        for assigned in partitions:
            if assigned.error is None or assigned.buffered:
                continue
            if assigned.missing and not assigned.confirmed:
                self.unconfirmed = assigned.partition
                continue
            self._new.pop(assigned.partition, None)
            assigned.missing_reported = assigned.missing
            raise assigned.error

    def update_missing(
        self,
        partitions: Iterable[Assigned],
        leader_of: Callable[[TopicPartition], Leader | None],
        removal_error: Callable[[TopicPartition], TidelogError | None],
    ) -> None:
        """Adds the errors that `removal_error` returns for partitions that no longer exist. Removes
        the errors of partitions that exist again."""
        for assigned in partitions:
            # A partition without a position may not be known to exist yet.
            if assigned.reset is not None or (assigned.error and not assigned.missing):
                continue
            partition = assigned.partition
            error = removal_error(partition) if leader_of(partition) is None else None
            if error is not None and assigned.missing:
                # The reason may have changed: the topic was created again with fewer partitions.
                assigned.error = error
            elif error is not None:
                assigned.missing = True
                self.add(assigned, error)
            elif error is None and assigned.missing:
                assigned.missing = assigned.confirmed = False
                assigned.error = None


def confirm_missing(assigned: Iterable[Assigned], topic: str) -> None:
    """Records that a broker has just been queried about this topic."""
    for partition in assigned:
        if partition.partition.topic == topic:
            partition.confirmed = partition.missing
