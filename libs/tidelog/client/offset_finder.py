"""Queries leaders for offsets: the earliest, the latest, or the first at or after a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from tidelog.client.ask_leaders import Answers, Ask, Asked, LeaderAsker
from tidelog.client.connections import BrokerApi
from tidelog.client.fetch_codec import FoundOffset, offsets_from_wire, offsets_to_wire
from tidelog.errors import TidelogError
from tidelog.model import OffsetPosition, TopicPartition

REQUEST_TIMEOUT_MS = 5_000
PARTITIONS_FIELD = "tidelog.v1.ListOffsetsRequest.partitions"


class OffsetFinder:
    def __init__(self, asker: LeaderAsker) -> None:
        self._asker = asker

    async def find(
        self,
        partitions: Iterable[TopicPartition],
        position: OffsetPosition,
        timestamp_ms: int = 0,
    ) -> dict[TopicPartition, int]:
        """Returns one offset for each partition; -1: no record is at or after the time. Follows
        changes of leaders. Raises `TidelogError` after the timeout."""
        told = await self.find_told(partitions, position, timestamp_ms)
        return {partition: found.offset for partition, found in told.items()}

    async def find_told(
        self,
        partitions: Iterable[TopicPartition],
        position: OffsetPosition,
        timestamp_ms: int = 0,
    ) -> dict[TopicPartition, FoundOffset]:
        """As `find`, with the epoch of the leader that answered and the topic's id."""
        return await self._asker.ask_all(
            partitions, _ask(position, timestamp_ms), "offsets", PARTITIONS_FIELD
        )

    def find_each(
        self, partitions: Iterable[TopicPartition], position: OffsetPosition
    ) -> AsyncGenerator[tuple[TopicPartition, FoundOffset | TidelogError]]:
        """As `find_told`, but no partition waits for the leader of another, or gets its error."""
        return self._asker.ask_each(partitions, _ask(position), "offsets", PARTITIONS_FIELD)


def _ask(position: OffsetPosition, timestamp_ms: int = 0) -> Ask[FoundOffset]:
    async def ask(broker: BrokerApi, asked: Asked) -> Answers[FoundOffset]:
        request = offsets_to_wire(asked, position, timestamp_ms)
        return offsets_from_wire(asked, await broker.list_offsets(request, REQUEST_TIMEOUT_MS))

    return ask
