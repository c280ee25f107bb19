"""What a replica needs of its log; `tidelog_broker.log.log.Log` is the real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple, Protocol

from tidelog.model import Batch, EpochEnd
from tidelog_broker.partition.producer_state import CrowdedOut, ProducerStates


class ColdRange(NamedTuple):
    """A part of a file, in bytes, whose beginning is not in memory."""

    path: PurePath
    position: int
    size: int

    @property
    def end(self) -> int:
        return self.position + self.size


class ColdDataError(Exception):
    """What is asked for is on the disk alone. No fault: once it has been read, the same
    succeeds."""

    def __init__(self, cold: ColdRange) -> None:
        super().__init__(f"{cold.path} is not in memory at byte {cold.position}")
        self.cold = cold


class CachedBatches(NamedTuple):
    """`cold`: where memory ended before all was read that was asked for."""

    batches: list[Batch]
    cold: ColdRange | None


class ReplicaProducers(Protocol):
    """Kept by the log: what is appended is noted, what is cut is forgotten."""

    @property
    def states(self) -> ProducerStates:
        """Those of all batches that were ever in the log and not cut."""

    @property
    def lacking(self) -> bool:
        """The log was emptied to begin above offset 0, and who wrote below is not known."""

    @property
    def lost(self) -> bool:
        """The log has batches, and who wrote below its start is not known any more."""

    def take_crowded_out(self) -> CrowdedOut:
        """Who was forgotten since the last call because too many others wrote."""

    def below_start(self) -> ProducerStates:
        """Those who wrote below the log's start."""

    def learn(self, states: ProducerStates) -> None:
        """Who wrote below the start of an empty log that is `lacking`."""


class ReplicaLog(Protocol):
    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int: ...

    @property
    def producers(self) -> ReplicaProducers: ...

    @property
    def leader_epochs(self) -> Sequence[tuple[int, int]]:
        """Each leader epoch of the log and where it starts, in order."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def segment_count(self) -> int: ...

    def bytes_from(self, offset: int) -> int:
        """About how many bytes there are from that offset on; 0 at the log's end."""

    def append_time_of(self, offset: int) -> int | None:
        """Of the batch that holds the offset; None at the log's end, and where nothing in
        memory tells."""

    def epoch_end(self, epoch: int) -> EpochEnd: ...

    def append(self, batches: Sequence[Batch]) -> None: ...

    def read(self, offset: int, *, max_bytes: int, up_to: int) -> list[Batch]: ...

    def read_cached(self, offset: int, *, max_bytes: int, up_to: int) -> CachedBatches:
        """The same without waiting for the disk."""

    def restore(self, batches: Sequence[Batch]) -> bool:
        """Writes batches over the unreadable one that has their offsets. False: they are not those
        that were there."""

    def truncate_to(self, offset: int) -> None: ...

    def reset_to(self, offset: int) -> None: ...

    def offset_for_timestamp(
        self, timestamp_ms: int, up_to: int, *, waits: bool = True
    ) -> Batch | None:
        """Raises `ColdDataError` where it would have to wait for the disk and does not."""
