"""ListOffsets: the earliest offset, the latest, or the first at or after a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tidelog.batch import is_damaged
from tidelog.batch_slices import is_costly_to_open
from tidelog.model import NO_OFFSET, Batch, OffsetPosition, TopicPartition
from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_log import ColdDataError
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.storage.cold_reads import ColdReads

NO_TIMESTAMP = -1

# Costly batches that are opened in threads at once: each thread needs the interpreter now and then.
OPENED_AT_ONCE = 1

# Reading and checking a larger batch holds the event loop for milliseconds. A search that finds one
# is followed by a pause of about that time, and searches run one at a time.
LARGE_BATCH_BYTES = 1 << 20
PAUSE_S_PER_BYTE = 1e-9

# Timestamps of a batch's records, in order.
TimestampsOf = Callable[[Batch], Sequence[int]]


class ListOffsetsEntry(NamedTuple):
    name: TopicPartition
    topic_id: str
    known_epoch: int
    position: OffsetPosition
    timestamp_ms: int


class FoundOffset(NamedTuple):
    """The first matching record. NO_OFFSET: no committed record is that young."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class ListOffsets:
    def __init__(
        self,
        manager: ReplicaManager,
        timestamps_of: TimestampsOf,
        cold_reads: ColdReads,
        run_blocking: RunBlocking,
    ) -> None:
        self._manager = manager
        self._timestamps_of = timestamps_of
        self._cold_reads = cold_reads
        self._run_blocking = run_blocking
        self._room = asyncio.Semaphore(OPENED_AT_ONCE)
        self._search = asyncio.Lock()

    async def handle(self, entry: ListOffsetsEntry) -> FoundOffset:
        """Returns the offset that the entry requests. Raises `TidelogError`."""
        partition = self._manager.partition(entry.name, entry.topic_id)
        epoch = partition.leader_epoch
        match entry.position:
            case OffsetPosition.EARLIEST:
                # Fenced like the other positions: a deposed leader may have kept deleted records.
                partition.read_for_consumer(
                    partition.log.log_start_offset, entry.known_epoch, max_bytes=0
                )
                return FoundOffset(partition.log.log_start_offset, NO_TIMESTAMP, epoch)
            case OffsetPosition.LATEST:
                return FoundOffset(partition.committed_end(entry.known_epoch), NO_TIMESTAMP, epoch)
            case OffsetPosition.TIMESTAMP:
                try:
                    return await self._by_time(partition, entry)
                except LogError as error:
                    raise self._manager.replica_failed(partition, error, "read") from error

    async def _by_time(self, partition: Partition, entry: ListOffsetsEntry) -> FoundOffset:
        batch = await self._first_batch(partition, entry)
        found: list[tuple[int, int]] = []
        if batch is not None:

            def search(batch: Batch = batch) -> None:
                found.extend(islice(self._since(batch, entry.timestamp_ms), 1))

            if is_costly_to_open(batch):
                async with self._room:
                    await self._run_blocking(search)
            else:
                search()
        for position, timestamp_ms in found:
            assert batch is not None
            offset = batch.header.base_offset + position
            return FoundOffset(offset, timestamp_ms, partition.leader_epoch)
        return FoundOffset(NO_OFFSET, NO_TIMESTAMP, partition.leader_epoch)

    def _since(self, batch: Batch, timestamp_ms: int) -> Iterator[tuple[int, int]]:
        """Yields positions and timestamps of the batch's records at or after that time."""
        if is_damaged(batch.header):
            yield 0, batch.header.max_timestamp_ms
            return
        for position, of_record in enumerate(self._timestamps_of(batch)):
            if of_record >= timestamp_ms:
                yield position, of_record

    async def _first_batch(self, partition: Partition, entry: ListOffsetsEntry) -> Batch | None:
        """Returns the first batch that reaches that time.

        Waits for the disk outside the event loop.
        """
        waits = False
        while True:
            try:
                async with self._search:
                    found = partition.first_batch_since(
                        entry.timestamp_ms, entry.known_epoch, waits=waits
                    )
                    if found is not None and len(found.records) > LARGE_BATCH_BYTES:
                        await asyncio.sleep(len(found.records) * PAUSE_S_PER_BYTE)
                    return found
            except ColdDataError as error:
                cold = error.cold
            waits = await self._cold_reads.load(partition.log, cold)
