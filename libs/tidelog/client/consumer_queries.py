"""Queries of a consumer, which do not change what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.arguments import checks_arguments, mapping, natural, topic_partition
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.fetch_codec import FoundOffset
from tidelog.client.metadata_cache import KnownTopic
from tidelog.client.offset_finder import OffsetFinder
from tidelog.client.record_epochs import RecordEpoch, RecordEpochs
from tidelog.model import NO_OFFSET, OffsetPosition, TopicPartition

Partitions = Iterable[TopicPartition | tuple[str, int]]


@checks_arguments(timestamp_ms=natural, offsets=mapping(topic_partition, natural))
class ConsumerQueries:
    _metadata: ClusterMetadata
    _finder: OffsetFinder
    _epochs: RecordEpochs

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Returns the partitions of a topic, which need not be assigned. Raises
        UNKNOWN_TOPIC_OR_PARTITION."""
        known = await self._metadata.topic(topic)
        return [TopicPartition(topic, number) for number in range(known.partitions)]

    async def offsets_at_time(
        self, timestamp_ms: int, partitions: Partitions
    ) -> dict[TopicPartition, int]:
        """Returns the offset of each partition's first record at or after a time (milliseconds
        since 1970, UTC), or its end if there is none. The partitions need not be assigned."""
        requested = [TopicPartition(*partition) for partition in partitions]
        found = await self._finder.find(requested, OffsetPosition.TIMESTAMP, timestamp_ms)
        too_old = [partition for partition, offset in found.items() if offset == NO_OFFSET]
        if too_old:
            found.update(await self._finder.find(too_old, OffsetPosition.LATEST))
        return found

    async def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Returns the start offset of each log. The partitions need not be assigned."""
        requested = [TopicPartition(*partition) for partition in partitions]
        return await self._finder.find(requested, OffsetPosition.EARLIEST)

    async def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Returns the offset after the last committed record of each partition. The partitions
        need not be assigned."""
        requested = [TopicPartition(*partition) for partition in partitions]
        return await self._finder.find(requested, OffsetPosition.LATEST)

    async def offsets_with_epochs(
        self, position: OffsetPosition, partitions: Partitions, timestamp_ms: int = 0
    ) -> dict[TopicPartition, FoundOffset]:
        """Returns offsets with the leader epoch and topic id of the leader that answered; offset
        -1 if no record is at or after the time."""
        requested = [TopicPartition(*partition) for partition in partitions]
        return await self._finder.find_with_epochs(requested, position, timestamp_ms)

    # Former name, until version 0.3.0 (FORMER_NAMES_END).
    told_offsets = offsets_with_epochs

    async def record_epochs(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RecordEpoch]:
        """Returns the leader epoch of the record at one offset of each partition, for `resume`."""
        return await self._epochs.find(offsets)

    async def known_topic(self, topic: str, *, fresh: bool = False) -> KnownTopic:
        """Returns the known metadata of a topic; with `fresh`, after another query to a broker.
        Raises UNKNOWN_TOPIC_OR_PARTITION."""
        if fresh:
            await self._metadata.refresh_patiently((topic,))
        return await self._metadata.topic(topic)
