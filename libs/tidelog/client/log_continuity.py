"""Checks that a new leader's log has what a consumer has read (KIP-320, KIP-704). Pure.

If two logs have a batch of the same leader epoch at the same offset, they are equal up to that
batch. So the batch before the next offset is fetched again from each new leader, and compared.
This detects every truncation, even if the log has grown beyond it again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.errors import ErrorCode, OffsetOutOfRangeError
from tidelog.model import NO_EPOCH, Batch, BatchHeader, TopicPartition


class LogTruncatedError(OffsetOutOfRangeError):
    """Records that were read are no longer in the log (code OFFSET_OUT_OF_RANGE).

    The record before `offset` was read in `read_epoch`. The leader of `leader_epoch` has another
    record there, or none. The records that replaced it have not been read."""

    def __init__(
        self, partition: TopicPartition, offset: int, read_epoch: int, leader_epoch: int
    ) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log of {partition} was truncated below offset {offset}: the record before it "
            f"was read in leader epoch {read_epoch}, and is not in the log of the leader of "
            f"epoch {leader_epoch}; an unclean election has lost it, or the partition was removed "
            "and added again. Seek to where the new log is to be read from, or set "
            "on_out_of_range to earliest or latest",
        )
        self.partition = partition
        self.offset = offset
        self.read_epoch = read_epoch
        self.leader_epoch = leader_epoch


class Found(enum.Enum):
    SAME = enum.auto()
    OTHER = enum.auto()
    # The leader returns nothing there yet.
    NOTHING = enum.auto()


@dataclass(slots=True)
class Continuity:
    """The batch before the next offset to fetch.

    - `last`: its header.
    - `read_epoch`: its leader epoch; all that is known after another consumer has read it.
    - `leader_epoch`: the newest epoch whose leader is known to have it.
    """

    last: BatchHeader | None = None
    leader_epoch: int = NO_EPOCH
    read_epoch: int = NO_EPOCH

    def read(self, header: BatchHeader, leader_epoch: int) -> None:
        self.last = header
        self.read_epoch = header.leader_epoch
        self.leader_epoch = max(leader_epoch, self.leader_epoch)

    def resume(self, read_epoch: int) -> None:
        """Continues after another consumer. The record before the next offset was written in this
        epoch, and the leader of that epoch has it."""
        self.last = None
        self.read_epoch = self.leader_epoch = read_epoch

    def forget(self) -> None:
        """Forgets the last batch, because the next one does not continue it."""
        self.last = None
        self.read_epoch = NO_EPOCH

    def first_offset(self, next_offset: int, leader_epoch: int) -> int:
        """Returns the offset to fetch from: one record earlier from an unknown leader."""
        if self.read_epoch == NO_EPOCH or leader_epoch <= self.leader_epoch:
            return next_offset
        return next_offset - 1

    def compare(self, batches: Sequence[Batch]) -> Found:
        """Compares fetched batches with the last one. `batches`: from `first_offset` on."""
        if not batches:
            return Found.NOTHING
        return Found.SAME if self._is_last(batches[0].header) else Found.OTHER

    def _is_last(self, header: BatchHeader) -> bool:
        if self.last is None:
            return header.leader_epoch == self.read_epoch
        return _identity(header) == _identity(self.last)


def _identity(header: BatchHeader) -> tuple[int, ...]:
    return header.base_offset, header.leader_epoch, header.record_count, header.crc32c
