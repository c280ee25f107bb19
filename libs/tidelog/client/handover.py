"""Hands records from the event loop of a consumer to a caller in another thread. No I/O.

A result can be lost between the two: a signal handler raises in the waiting thread when the loop
has taken the records. So a consumer that `lends` keeps the batches of each taking until the caller
has returned their records. The loop recalls the others, and then reads them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.client.assigned_partition import Assigned
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.model import Batch, Record, TopicPartition

# A taking waits this long for a caller that has not woken up yet with the previous one.
WAKE_UP_S = 0.02
# Interval of the checks.
WAKE_UP_CHECK_S = 0.0005

# Partitions with the batches that were read, in this order.
Sources = list[tuple[Assigned, Batch]]


class Handover:
    """The items (records or batches) of one taking, of which the caller has `returned` some.

    The caller's thread writes `returned`, and only the event loop takes items back. Each of
    `consume`, `consume_next` and `recall` decides in a few steps without a call. CPython runs
    signal handlers and switches threads only at calls and backward jumps, so nothing runs between
    these steps, nor between the last of them and the caller's next statement."""

    __slots__ = ("_ends", "_items", "_sources", "count", "recalled", "returned")

    def __init__(self) -> None:
        self._items: Sequence[Any] = ()
        self._sources: Sequence[tuple[Assigned, Batch]] = ()
        # Positions of the partitions after the taking.
        self._ends: Mapping[Assigned, int | None] = {}
        self.count = 0
        self.returned = 0
        # Also set by a caller that gives up. The items are taken back by the next taking then.
        self.recalled = False

    def fill(self, items: Sequence[Any], sources: Sources) -> None:
        self._sources = sources
        self._ends = {assigned: assigned.position for assigned, _ in sources}
        self._items = items
        self.count = len(items)

    @property
    def is_pending(self) -> bool:
        """Whether the caller has not woken up yet."""
        return self.returned == 0 < self.count and not self.recalled

    def consume(self) -> bool:
        """Marks all items as returned. False: they were recalled, and the caller must not return
        them."""
        if self.recalled:
            return False
        self.returned = self.count
        self._items = self._sources = ()
        return True

    def consume_next(self) -> Any:
        """Returns the next item; None: there is none, or they were recalled."""
        number = self.returned
        if self.recalled or number >= self.count:
            return None
        item = self._items[number]
        self.returned = number + 1
        return item

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Returns the first offset of the partition that was not returned."""
        # The caller may return items meanwhile, and then drop them all.
        items, returned = self._items, self.returned
        return next((o for p, o in map(_place, items[returned:]) if p == partition), None)

    def recall(self) -> None:
        """Makes the items that were not returned the next ones of their partitions again."""
        self.recalled = True
        items, sources = self._items[self.returned :], self._sources
        self._items = self._sources = ()
        first: dict[TopicPartition, int] = {}
        for item in items:
            partition, offset = _place(item)
            first.setdefault(partition, offset)
        batches: dict[Assigned, list[Batch]] = {}
        for assigned, batch in sources:
            offset = first.get(assigned.partition, batch.header.next_offset)
            read = batches.setdefault(assigned, [])
            if batch.header.next_offset > offset and not (read and read[-1] is batch):
                read.append(batch)
        for assigned, read in batches.items():
            if read:
                assigned.give_back(first[assigned.partition], read, self._ends[assigned])


def _place(item: Record | FetchedBatch) -> tuple[TopicPartition, int]:
    if isinstance(item, FetchedBatch):
        return item.partition, item.first_offset
    return TopicPartition(item.topic, item.partition), item.offset


class Lending:
    """The takings of one consumer. Only the event loop uses it."""

    def __init__(self) -> None:
        # Set for a consumer whose callers are in other threads.
        self.lends = False
        self._handover: Handover | None = None
        # The last taking, until it is handed over.
        self._items: Sequence[Any] = ()
        self._sources: Sources = []

    def recall(self) -> None:
        """Takes back what was not returned. Called before any change of a position."""
        handover, self._handover = self._handover, None
        self._items, self._sources = (), []
        if handover is not None:
            handover.recall()

    def reads(self, assigned: Assigned) -> None:
        """Records that the next items are of the first buffered batch."""
        if self.lends:
            self._sources.append((assigned, assigned.buffered[0]))

    def took(self, items: Sequence[Any]) -> None:
        if self.lends:
            self._items = items

    def hand_over(self, result: Any, handover: Handover) -> None:
        """Fills the handover, if `result` is that of the last taking: its items, or its only one.
        There must not be an `await` between the taking and this call."""
        items, sources = self._items, self._sources
        self._items, self._sources = (), []
        if items and (result is items or (len(items) == 1 and result is items[0])):
            handover.fill(items, sources)
            self._handover = handover

    def position(self, assigned: Assigned) -> int | None:
        if self._handover is None:
            return assigned.position
        offset = self._handover.next_offset(assigned.partition)
        return assigned.position if offset is None else offset

    async def wait_until_woken(self) -> None:
        """Waits until the caller of the last taking has woken up. Otherwise threads that poll at
        once, or that wake together, would recall each other's records again and again."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + WAKE_UP_S
        while self._is_pending and clock() < until_s:  # noqa: ASYNC110 - the caller does not inform
            await asyncio.sleep(WAKE_UP_CHECK_S)

    @property
    def _is_pending(self) -> bool:
        return self._handover is not None and self._handover.is_pending
