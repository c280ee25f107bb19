"""Shadows of what each replica holds, and of what was committed.

A shadow follows every append and cut of its log in constant time, so that logs can be compared
without reading them. Batches are the unit: they are never split.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.batch import is_damaged, is_fence
from tidelog.model import BatchHeader


class Entry(NamedTuple):
    """One batch. The broker's CRC covers the producer's, and with it the content."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    broker_crc32c: int
    is_fence: bool = False
    is_unreadable: bool = False

    @classmethod
    def of(cls, header: BatchHeader) -> Entry:
        return cls(
            header.base_offset,
            header.next_offset,
            header.leader_epoch,
            header.broker_crc32c,
            is_fence(header),
            is_damaged(header),
        )


class ShadowLog:
    """What one replica holds: batches without a gap from `start` to `end`."""

    __slots__ = ("_bases", "entries", "start")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.entries: list[Entry] = []
        self._bases: list[int] = []

    @property
    def end(self) -> int:
        return self.entries[-1].next_offset if self.entries else self.start

    def append(self, headers: Iterable[BatchHeader]) -> None:
        for header in headers:
            self.add(Entry.of(header))

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._bases.append(entry.base_offset)

    def cut(self, offset: int) -> None:
        """Removes the batch that holds `offset`, and all after it; `start` may become lower."""
        keep = bisect_right(self._bases, offset)
        while keep and self.entries[keep - 1].next_offset > offset:
            keep -= 1
        del self.entries[keep:]
        del self._bases[keep:]
        self.start = min(self.start, offset)

    def reset(self, offset: int) -> None:
        self.entries.clear()
        self._bases.clear()
        self.start = offset

    def forget_below(self, offset: int) -> None:
        """Removes what retention has deleted below `offset`."""
        gone = bisect_left(self._bases, offset)
        del self.entries[:gone]
        del self._bases[:gone]
        self.start = max(self.start, offset)

    def from_offset(self, offset: int) -> Iterable[Entry]:
        """Returns the entries that begin at `offset` or later, in order."""
        return self.entries[bisect_left(self._bases, offset) :]

    def entry_with(self, offset: int) -> Entry | None:
        """Returns the batch that holds `offset`."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0 or self.entries[index].next_offset <= offset:
            return None
        return self.entries[index]


def first_difference(log: ShadowLog, committed: ShadowLog, low: int, high: int) -> Entry | None:
    """Returns the first batch of `log` from `low` to `high` that is not the committed one.

    A batch that is unreadable in one of the two does not count as different.
    """
    for entry in log.from_offset(low):
        if entry.base_offset >= high:
            return None
        other = committed.entry_with(entry.base_offset)
        if other != entry and not (
            _stands_for(entry, committed) or (other is not None and _stands_for(other, log))
        ):
            return entry
    return None


def _stands_for(unreadable: Entry, log: ShadowLog) -> bool:
    """Whether an unreadable batch has the offsets of whole batches of the log.

    A disk may have damaged these. The leader epoch is known only if it is that of one of them.
    """
    first, last = log.entry_with(unreadable.base_offset), log.entry_with(unreadable.next_offset - 1)
    return (
        unreadable.is_unreadable
        and first is not None
        and last is not None
        and (first.base_offset, last.next_offset) == unreadable[:2]
    )


def common_end(log: ShadowLog, committed: ShadowLog) -> int:
    """Returns where `log` departs from what was committed, or where the shorter of the two ends."""
    different = first_difference(log, committed, 0, committed.end)
    end = min(log.end, committed.end)
    return end if different is None else min(end, different.base_offset)
