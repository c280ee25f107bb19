"""ListOffsets: the earliest offset, the latest, or the first at or after a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.model import NO_OFFSET, Batch, OffsetPosition, TopicPartition
from tidelog_broker.log.errors import LogError
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.replica_log import ColdDataError
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.storage.cold_reads import ColdReads

NO_TIMESTAMP = -1

# Timestamps of a batch's records, in order.
TimestampsOf = Callable[[Batch], Sequence[int]]


class ListOffsetsEntry(NamedTuple):
    name: TopicPartition
    topic_id: str
    known_epoch: int
    position: OffsetPosition
    timestamp_ms: int


class FoundOffset(NamedTuple):
    """NO_OFFSET: no committed record is that young."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class ListOffsets:
    def __init__(
        self, manager: ReplicaManager, timestamps_of: TimestampsOf, cold_reads: ColdReads
    ) -> None:
        self._manager = manager
        self._timestamps_of = timestamps_of
        self._cold_reads = cold_reads

    async def __call__(self, entry: ListOffsetsEntry) -> FoundOffset:
        """Raises `TidelogError`."""
        partition = self._manager.partition(entry.name, entry.topic_id)
        epoch = partition.leader_epoch
        match entry.position:
            case OffsetPosition.EARLIEST:
                # Fenced like the others: a deposed leader may have kept what is gone.
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
        if batch is not None:
            for position, timestamp_ms in enumerate(self._timestamps_of(batch)):
                if timestamp_ms >= entry.timestamp_ms:
                    offset = batch.header.base_offset + position
                    return FoundOffset(offset, timestamp_ms, partition.leader_epoch)
        return FoundOffset(NO_OFFSET, NO_TIMESTAMP, partition.leader_epoch)

    async def _first_batch(self, partition: Partition, entry: ListOffsetsEntry) -> Batch | None:
        """Waits for the disk off the loop."""
        waits = False
        while True:
            try:
                return partition.first_batch_since(
                    entry.timestamp_ms, entry.known_epoch, waits=waits
                )
            except ColdDataError as error:
                cold = error.cold
            waits = self._cold_reads.has_read(partition.log, cold)
            if not waits:
                woken = asyncio.Event()
                self._cold_reads.begin(partition.log, cold, woken)
                await woken.wait()
