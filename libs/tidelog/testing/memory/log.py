"""The log of one partition in memory. Its only replica leads it, so nothing is ever cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, Batch, EpochEnd
from tidelog_broker.core.partition.producer_state import NOBODY, CrowdedOut, ProducerStates
from tidelog_broker.core.partition.replica_log import CachedBatches


class MemoryRoom:
    """The bytes that all logs together may hold, counted as the batches' compressed records."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    def take(self, size: int) -> None:
        """Raises INVALID_REQUEST, which clients do not retry, if there is no room."""
        if self.used_bytes + size > self.max_bytes:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"the memory broker holds {self.used_bytes} of at most {self.max_bytes} bytes, and "
                f"{size} more are sent; raise max_bytes of MemoryBroker, or use the fixture "
                "tidelog_cluster",
            )
        self.used_bytes += size

    def give_back(self, size: int) -> None:
        self.used_bytes -= size


class MemoryProducers:
    """The producers of a log that was never reset: all of them are known."""

    lacking = False
    lost = False

    def __init__(self) -> None:
        self.states = ProducerStates()

    def take_crowded_out(self) -> CrowdedOut:
        return NOBODY

    def below_start(self) -> ProducerStates:
        return ProducerStates()

    def adopt_below_start(self, states: ProducerStates) -> None:
        raise _of_followers(f"adopt {len(states)} producers")


class MemoryLog:
    def __init__(self, room: MemoryRoom) -> None:
        self._room = room
        self._batches: list[Batch] = []
        # The offset after each batch.
        self._ends: list[int] = []
        self._start = 0
        self.leader_epochs: list[tuple[int, int]] = []
        self.producers = MemoryProducers()
        self.size_bytes = 0
        self.segment_count = 1

    @property
    def log_start_offset(self) -> int:
        return self._start

    @property
    def log_end_offset(self) -> int:
        return self._ends[-1] if self._ends else self._start

    @property
    def flushed_offset(self) -> int:
        """Memory is the only disk here, so that `durability=synced` never waits."""
        return self.log_end_offset

    @property
    def latest_epoch(self) -> int:
        return self.leader_epochs[-1][0] if self.leader_epochs else NO_EPOCH

    def bytes_from(self, offset: int) -> int:
        return sum(len(batch.records) for batch in self._from(offset))

    def append_time_of(self, offset: int) -> int | None:
        found = self._from(offset)[:1] if offset >= self._start else []
        return found[0].header.append_time_ms if found else None

    def epoch_end(self, epoch: int) -> EpochEnd:
        known = [(e, start) for e, start in self.leader_epochs if e <= epoch]
        if not known:
            return EpochEnd(NO_EPOCH, NO_EPOCH)
        following = self.leader_epochs[len(known) :]
        return EpochEnd(known[-1][0], following[0][1] if following else self.log_end_offset)

    def append(self, batches: Sequence[Batch]) -> None:
        size = sum(len(batch.records) for batch in batches)
        self._room.take(size)
        self.size_bytes += size
        for batch in batches:
            header = batch.header
            if header.leader_epoch != self.latest_epoch:
                self.leader_epochs.append((header.leader_epoch, header.base_offset))
            self._batches.append(batch)
            self._ends.append(header.next_offset)
            self.producers.states.note(header)

    def read(self, offset: int, *, max_bytes: int, up_to: int) -> list[Batch]:
        found: list[Batch] = []
        size = 0
        for batch in self._from(offset):
            size += len(batch.records)
            if batch.header.next_offset > up_to or (found and size > max_bytes):
                break
            found.append(batch)
        return found

    def read_cached(self, offset: int, *, max_bytes: int, up_to: int) -> CachedBatches:
        return CachedBatches(self.read(offset, max_bytes=max_bytes, up_to=up_to), None)

    def offset_for_timestamp(
        self,
        timestamp_ms: int,
        up_to: int,
        *,
        waits: bool = True,  # noqa: ARG002 - nothing waits here
    ) -> Batch | None:
        for batch in self._batches:
            if batch.header.max_timestamp_ms >= timestamp_ms:
                return batch if batch.header.next_offset <= up_to else None
        return None

    def remove_before(self, offset: int) -> None:
        """Removes what retention would: all batches that end at or below the offset, which becomes
        the log's start."""
        count = bisect_right(self._ends, offset)
        size = sum(len(batch.records) for batch in self._batches[:count])
        del self._batches[:count]
        del self._ends[:count]
        self._start = offset
        self.size_bytes -= size
        self._room.give_back(size)

    def delete(self) -> None:
        self.remove_before(self.log_end_offset)

    def restore(self, batches: Sequence[Batch]) -> bool:
        raise _of_followers(f"restore {len(batches)} batches")

    def truncate_to(self, offset: int) -> None:
        raise _of_followers(f"are truncated to {offset}")

    def reset_to(self, offset: int) -> None:
        raise _of_followers(f"are reset to {offset}")

    def _from(self, offset: int) -> list[Batch]:
        """Returns the batches from the one that holds the offset on."""
        return self._batches[bisect_right(self._ends, offset) :]


def _of_followers(what: str) -> AssertionError:
    return AssertionError(f"only logs of followers {what}, and a memory broker has none")
