"""Queries leaders for offsets: the earliest, the latest, or the first at or after a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from tidelog.client.connections import BrokerApi
from tidelog.client.fetch_codec import FoundOffset, offsets_from_wire, offsets_to_wire
from tidelog.client.leader_queries import LeaderAnswers, LeaderQueries, LeaderQuery, LedPartitions
from tidelog.errors import TidelogError
from tidelog.model import OffsetPosition, TopicPartition

REQUEST_TIMEOUT_MS = 5_000
PARTITIONS_FIELD = "tidelog.v1.ListOffsetsRequest.partitions"


class OffsetFinder:
    def __init__(self, queries: LeaderQueries) -> None:
        self._queries = queries

    async def find(
        self,
        partitions: Iterable[TopicPartition],
        position: OffsetPosition,
        timestamp_ms: int = 0,
    ) -> dict[TopicPartition, int]:
        """Returns one offset for each partition; -1: no record is at or after the time. Follows
        changes of leaders. Raises `TidelogError` after the timeout."""
        results = await self.find_with_epochs(partitions, position, timestamp_ms)
        return {partition: found.offset for partition, found in results.items()}

    async def find_with_epochs(
        self,
        partitions: Iterable[TopicPartition],
        position: OffsetPosition,
        timestamp_ms: int = 0,
    ) -> dict[TopicPartition, FoundOffset]:
        """As `find`, with the epoch of the leader that answered and the topic's id."""
        return await self._queries.query_all(
            partitions, _query(position, timestamp_ms), "offsets", PARTITIONS_FIELD
        )

    def find_each(
        self, partitions: Iterable[TopicPartition], position: OffsetPosition
    ) -> AsyncGenerator[tuple[TopicPartition, FoundOffset | TidelogError]]:
        """As `find_with_epochs`, but no partition waits for the leader of another or gets its
        error."""
        return self._queries.query_each(partitions, _query(position), "offsets", PARTITIONS_FIELD)


def _query(position: OffsetPosition, timestamp_ms: int = 0) -> LeaderQuery[FoundOffset]:
    async def query(broker: BrokerApi, requested: LedPartitions) -> LeaderAnswers[FoundOffset]:
        request = offsets_to_wire(requested, position, timestamp_ms)
        return offsets_from_wire(requested, await broker.list_offsets(request, REQUEST_TIMEOUT_MS))

    return query
