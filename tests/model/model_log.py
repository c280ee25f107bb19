"""A replica's log, with batches of one record each, over the production cache of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tidelog.batch import new_batch, stamp
from tidelog.model import Batch, Codec, EpochEnd
from tidelog_broker.core.partition.producer_state import NOBODY, CrowdedOut, ProducerStates
from tidelog_broker.core.partition.replica_log import CachedBatches
from tidelog_broker.log.leader_epochs import LeaderEpochs

from .values import NOT_SYNCED, RECORDS_PER_EPOCH, Entries, entry, epoch_of

NOW_MS = 1_000


class NoProducers:
    """Knows no producers: no record of the model has a producer id."""

    lacking = False
    lost = False

    def __init__(self) -> None:
        self.states = ProducerStates()

    def below_start(self) -> ProducerStates:
        return ProducerStates()

    def take_crowded_out(self) -> CrowdedOut:
        return NOBODY

    def adopt_below_start(self, states: ProducerStates) -> None:
        raise NotImplementedError("no log of the model begins above offset 0")


class ModelLog:
    """A `ReplicaLog`. Without `flushed`, all of it counts as synced at once."""

    def __init__(self, entries: Entries, flushed: int = NOT_SYNCED) -> None:
        self.flushed = flushed
        self.batches: list[Batch] = []
        self.producers = NoProducers()
        self._epochs = LeaderEpochs()
        self.append([stored(offset, logged) for offset, logged in enumerate(entries)])

    @property
    def entries(self) -> Entries:
        return tuple(to_entry(batch) for batch in self.batches)

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        return tuple((e.leader_epoch, e.start_offset) for e in self._epochs.entries)

    @property
    def size_bytes(self) -> int:
        return self.log_end_offset - self.log_start_offset

    @property
    def segment_count(self) -> int:
        return 1

    def bytes_from(self, offset: int) -> int:
        return self.log_end_offset - offset

    def append_time_of(self, offset: int) -> int | None:  # noqa: ARG002 - there is no time
        return None

    @property
    def log_start_offset(self) -> int:
        return 0

    @property
    def log_end_offset(self) -> int:
        return len(self.batches)

    @property
    def flushed_offset(self) -> int:
        return len(self.batches) if self.flushed == NOT_SYNCED else self.flushed

    @property
    def latest_epoch(self) -> int:
        return self._epochs.latest

    def epoch_end(self, epoch: int) -> EpochEnd:
        return self._epochs.epoch_end(epoch, self.log_end_offset)

    def append(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.header.base_offset != len(self.batches):
                raise ValueError(f"offset {batch.header.base_offset} cannot follow {self.entries}")
            self._epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
            self.batches.append(batch)

    def read(self, offset: int, *, max_bytes: int, up_to: int) -> list[Batch]:
        del max_bytes
        return self.batches[offset:up_to]

    def read_cached(self, offset: int, *, max_bytes: int, up_to: int) -> CachedBatches:
        return CachedBatches(self.read(offset, max_bytes=max_bytes, up_to=up_to), None)

    def restore(self, batches: Sequence[Batch]) -> bool:
        raise NotImplementedError("damage takes all that is behind it here")

    def truncate_to(self, offset: int) -> None:
        del self.batches[offset:]
        self.flushed = min(self.flushed, offset)
        self._epochs.truncate_from_end(offset)

    def reset_to(self, offset: int) -> None:
        if offset > 0:
            raise ValueError(f"every log of the model starts at 0, not at {offset}")
        self.truncate_to(0)

    def offset_for_timestamp(
        self, timestamp_ms: int, up_to: int, *, waits: bool = True
    ) -> Batch | None:
        raise NotImplementedError("nothing requests timestamps here")


def produced(record: int) -> Batch:
    """Returns a batch as a producer sends it. Its timestamp is the number of the record."""
    return new_batch(
        b"",
        codec=Codec.NONE,
        record_count=1,
        base_timestamp_ms=record,
        max_timestamp_ms=record,
    )


@cache
def stored(offset: int, logged: int) -> Batch:
    return stamp(
        produced(logged % RECORDS_PER_EPOCH),
        base_offset=offset,
        leader_epoch=epoch_of(logged),
        append_time_ms=NOW_MS,
    )


def to_entry(batch: Batch) -> int:
    return entry(batch.header.leader_epoch, batch.header.base_timestamp_ms)
