"""The offsets at which leader epochs begin in a log (KIP-101, KIP-279). Replicas compare them to
find the offset at which their logs diverge."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.model import NO_EPOCH, EpochEnd


class EpochEntry(NamedTuple):
    leader_epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of a log. Invariants: epochs grow strictly, start offsets never fall."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries = list(entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        return self._entries[-1].leader_epoch if self._entries else NO_EPOCH

    def assign(self, leader_epoch: int, start_offset: int) -> bool:
        """Records that a batch of this epoch lies at this offset. Returns True if the epoch is
        new."""
        if leader_epoch == self.latest:
            return False
        if self._entries and (
            leader_epoch < self.latest or start_offset < self._entries[-1].start_offset
        ):
            raise ValueError(
                f"epoch {leader_epoch} at offset {start_offset} cannot follow "
                f"{self._entries[-1]}; epochs and offsets only grow"
            )
        self._entries.append(EpochEntry(leader_epoch, start_offset))
        return True

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch of the batch that holds the offset; NO_EPOCH if it is below the first
        known."""
        index = bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[index - 1].leader_epoch if index else NO_EPOCH

    def epoch_start(self, leader_epoch: int) -> int | None:
        """Returns None if no batch of this epoch is in the log."""
        index = bisect.bisect_left(self._entries, (leader_epoch,))
        if index < len(self._entries) and self._entries[index].leader_epoch == leader_epoch:
            return self._entries[index].start_offset
        return None

    def epoch_end(self, leader_epoch: int, log_end_offset: int) -> EpochEnd:
        """Returns the largest epoch at or below the requested one, and the first offset after it.

        If all epochs here are larger: NO_EPOCH, and the offset at which they begin."""
        index = bisect.bisect_left(self._entries, (leader_epoch + 1,))
        end = self._entries[index].start_offset if index < len(self._entries) else log_end_offset
        return EpochEnd(self._entries[index - 1].leader_epoch if index else NO_EPOCH, end)

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that begin at or after the new end of the log."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes the epochs that end at or before the new start of the log.

        The latest one always stays: even if all batches have expired, its epoch is known."""
        later = [entry for entry in self._entries if entry.start_offset > start_offset]
        former = self._entries[: len(self._entries) - len(later)]
        if former:
            later.insert(0, EpochEntry(former[-1].leader_epoch, start_offset))
        self._entries = later

    def clip(self, log_start_offset: int, log_end_offset: int) -> None:
        """Cuts entries that were read from disk to the offsets of the log. Entries are written
        before their batches, so that there may be too many."""
        below = [e for e in self._entries if e.start_offset < log_end_offset]
        if not below and 0 < log_start_offset == log_end_offset:
            # All batches have expired. The first entry is the one that `truncate_from_start` left.
            below = [e for e in self._entries if e.start_offset == log_end_offset][:1]
        self._entries = below
        self.truncate_from_start(log_start_offset)
