"""The interfaces of a log that a replica needs. `tidelog_broker.log.log.Log` implements them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import NamedTuple, Protocol

from tidelog.model import Batch, EpochEnd
from tidelog_broker.core.partition.producer_state import CrowdedOut, ProducerStates


class ColdRange(NamedTuple):
    """A part of a file, in bytes, whose beginning is not in the page cache.

    `work`: what has to be done with this part, in a thread, before a retry succeeds. It blocks and
    raises `OSError`. None: reading it suffices."""

    path: PurePath
    position: int
    size: int
    work: Callable[[], None] | None = None

    @property
    def end(self) -> int:
        return self.position + self.size


class ColdDataError(Exception):
    """The requested data is only on disk. This is no fault: once it has been read, a retry
    succeeds, or needs more."""

    def __init__(self, cold: ColdRange) -> None:
        super().__init__(f"{cold.path} is not in memory at byte {cold.position}")
        self.cold = cold


class CachedBatches(NamedTuple):
    """`cold`: where the page cache ended before the requested batches did."""

    batches: list[Batch]
    cold: ColdRange | None


class ReplicaProducers(Protocol):
    """The producers of a log. It applies what is appended, and forgets what is cut."""

    @property
    def states(self) -> ProducerStates:
        """The states after all batches that were ever in the log and not cut."""

    @property
    def lacking(self) -> bool:
        """The log was reset to an offset above 0, and the producers that wrote below are
        unknown."""

    @property
    def lost(self) -> bool:
        """The log has batches, and the producers that wrote below its start are unknown."""

    def take_crowded_out(self) -> CrowdedOut:
        """Returns the producers evicted since the last call because there were too many."""

    def below_start(self) -> ProducerStates:
        """Returns the producers that wrote below the log's start."""

    def adopt_below_start(self, states: ProducerStates) -> None:
        """Stores the producers that wrote below the start of an empty log that is `lacking`."""


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
        """Each leader epoch of the log and its start offset, in order."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def segment_count(self) -> int: ...

    def bytes_from(self, offset: int) -> int:
        """Returns about how many bytes there are from the offset on; 0 at the log's end."""

    def append_time_of(self, offset: int) -> int | None:
        """Returns the append time of the batch that holds the offset; None at the log's end, and if
        memory does not hold it."""

    def epoch_end(self, epoch: int) -> EpochEnd: ...

    def append(self, batches: Sequence[Batch]) -> None: ...

    def read(self, offset: int, *, max_bytes: int, up_to: int) -> list[Batch]: ...

    def read_cached(self, offset: int, *, max_bytes: int, up_to: int) -> CachedBatches:
        """Like `read`, without waiting for the disk."""

    def restore(self, batches: Sequence[Batch]) -> bool:
        """Overwrites the unreadable batch of these offsets. Returns False if the batches are not
        those that were there."""

    def truncate_to(self, offset: int) -> None: ...

    def reset_to(self, offset: int) -> None: ...

    def offset_for_timestamp(
        self, timestamp_ms: int, up_to: int, *, waits: bool = True
    ) -> Batch | None:
        """With `waits` false, raises `ColdDataError` instead of waiting for the disk."""
