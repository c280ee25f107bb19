"""Requests of a driver to the cluster: which topics exist, and where their logs begin and end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tidelog.client.admin import Admin
from tidelog.client.background import BackgroundClient
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.connections import Connections
from tidelog.client.consumer import Consumer
from tidelog.client.descriptions import TopicDescription
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, OffsetPosition, TopicPartition
from tidelog.spark.boundaries import AtTimes
from tidelog.spark.data_loss import ClusterNow, PartitionNow, TopicNow, Truncation, behind
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import TopicChoice
from tidelog.spark.stream_offsets import ReadTo, StreamOffsets

# A topic that brokers report as unknown for this long is gone; until then they may be behind. Each
# request begins with another broker, so that the answer of a broker without etcd is not enough.
GONE_AFTER_MS = 5_000
POLL_PAUSE_MS = 200
# How long requests are repeated until their answers are consistent.
POLL_TIMEOUT_MS = 30_000
OFFSETS_TIMEOUT_MS = 60_000


class ClusterLookups:
    """Requests about the cluster's current state. Belongs to one event loop. Raises only
    `TidelogError`."""

    def __init__(
        self,
        bootstrap: str,
        *,
        connections: Connections | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._admin = Admin(bootstrap, connections=connections, clock=clock)
        self._consumer = Consumer(
            bootstrap,
            offsets_timeout_ms=OFFSETS_TIMEOUT_MS,
            connections=connections,
            clock=clock,
        )

    async def close(self) -> None:
        await self._consumer.close()
        await self._admin.close()

    async def now(
        self, choice: TopicChoice, read: StreamOffsets, *, must_exist: bool = True
    ) -> ClusterNow:
        """Returns the chosen topics and partitions.

        A topic or partition in `read` is missing if it is certainly gone. One that neither exists
        nor is in `read` is missing, too; with `must_exist` it is an error instead:
        UNKNOWN_TOPIC_OR_PARTITION for a topic, `OptionError` for a partition.
        """
        give_up_ms = self._clock.monotonic_ms() + POLL_TIMEOUT_MS
        while True:
            topics = await self._topics(choice, read, must_exist)
            now = await self._with_offsets(choice, topics)
            if now is not None and not behind(read, now):
                return now
            if self._clock.monotonic_ms() >= give_up_ms:
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"brokers reported inconsistent offsets of {', '.join(sorted(topics))} for "
                    f"{POLL_TIMEOUT_MS} ms: some are behind; check that they reach etcd",
                )
            await asyncio.sleep(POLL_PAUSE_MS / 1000)

    async def _topics(
        self, choice: TopicChoice, read: StreamOffsets, must_exist: bool
    ) -> dict[str, TopicDescription]:
        since_ms = self._clock.monotonic_ms()
        while True:
            found = await self._found(choice)
            missing = [name for name in read if choice.matches(name) and name not in found]
            error = _assignment_error(choice, read, found) if must_exist else None
            gone = self._clock.monotonic_ms() - since_ms >= GONE_AFTER_MS
            if not missing and error is None:
                break
            if gone and error is not None:
                raise error
            if gone:
                break
            await asyncio.sleep(POLL_PAUSE_MS / 1000)
        for name in choice.named if must_exist else ():
            if name not in found and name not in read:
                # Requests it from several brokers, and raises their error.
                found[name] = await self._admin.describe_topic(name)
        return found

    async def _found(self, choice: TopicChoice) -> dict[str, TopicDescription]:
        if choice.pattern is None:
            reported = await self._admin.find_topics(choice.named)
        else:
            reported = [t for t in await self._admin.list_topics() if choice.matches(t.name)]
        # A topic without partitions is still being created.
        return {topic.name: topic for topic in reported if topic.partition_count}

    async def _with_offsets(
        self, choice: TopicChoice, topics: Mapping[str, TopicDescription]
    ) -> ClusterNow | None:
        """Returns None if the leaders reported offsets of other topics or partitions."""
        partitions = [
            TopicPartition(name, number)
            for name, topic in topics.items()
            for number in choice.partitions(name, topic.partition_count)
        ]
        try:
            first = await self._consumer.offsets_with_epochs(OffsetPosition.EARLIEST, partitions)
            last = await self._consumer.offsets_with_epochs(OffsetPosition.LATEST, partitions)
        except TidelogError as error:
            if error.code in FINAL_ANSWERS:
                return None
            raise
        known = {
            TopicPartition(name, found.partition): found
            for name, topic in topics.items()
            for found in topic.partitions
        }
        for p in partitions:
            # A partition that was added again has newer epochs than its predecessor ever had.
            if p not in known or known[p].leader_epoch < last[p].leader_epoch:
                return None
            if {first[p].topic_id, last[p].topic_id} != {topics[p.topic].topic_id}:
                return None
        of_topic: dict[str, dict[int, PartitionNow]] = {name: {} for name in topics}
        for p in partitions:
            of_topic[p.topic][p.partition] = PartitionNow(
                first[p].offset,
                max(first[p].offset, last[p].offset),
                last[p].leader_epoch,
                known[p].create_revision,
            )
        return {
            name: TopicNow(topic.topic_id, topic.create_revision, of_topic[name], _as_of(topic))
            for name, topic in topics.items()
        }

    async def at_times(self, requested: Mapping[int, Iterable[TopicPartition]]) -> AtTimes:
        found: dict[TopicPartition, int] = {}
        for time_ms, partitions in requested.items():
            reported = await self._consumer.offsets_with_epochs(
                OffsetPosition.TIMESTAMP, partitions, timestamp_ms=time_ms
            )
            found |= {partition: at.offset for partition, at in reported.items()}
        return found

    async def epochs_before(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Returns the leader epoch of the record before each offset. NO_EPOCH if that record no
        longer exists or cannot be read."""
        requested = {partition: offset - 1 for partition, offset in offsets.items() if offset}
        reported = await self._consumer.record_epochs(requested)
        return {p: reported[p].record_epoch if p in reported else NO_EPOCH for p in offsets}

    async def truncations(
        self, read: Mapping[TopicPartition, ReadTo]
    ) -> dict[TopicPartition, Truncation]:
        """Returns where logs have other records than those that were read. Only a leader of a later
        epoch than that of the last record is evidence."""
        reported = await self._consumer.record_epochs({p: at.offset - 1 for p, at in read.items()})
        found: dict[TopicPartition, Truncation] = {}
        for partition, at in read.items():
            record = reported[partition]
            expired = at.offset - 1 < record.log_start_offset
            newer = record.leader_epoch > at.leader_epoch
            # A record that was damaged after it was read is no evidence of truncation.
            if (
                newer
                and not record.damaged
                and not expired
                and record.record_epoch != at.leader_epoch
            ):
                found[partition] = await self._truncated(partition, at)
        return found

    async def _truncated(self, partition: TopicPartition, at: ReadTo) -> Truncation:
        """A binary search, since leader epochs never decrease along a log."""
        epoch_before, leader_epoch = NO_EPOCH, NO_EPOCH
        first, end = 0, at.offset - 1
        while first < end:
            middle = (first + end) // 2
            record = (await self._consumer.record_epochs({partition: middle}))[partition]
            leader_epoch = record.leader_epoch
            if middle < record.log_start_offset:
                first = min(record.log_start_offset, end)
            elif NO_EPOCH < record.record_epoch <= at.leader_epoch:
                first, epoch_before = middle + 1, record.record_epoch
            else:
                end = middle
        return Truncation(first, leader_epoch, epoch_before)


def _assignment_error(
    choice: TopicChoice, read: StreamOffsets, found: Mapping[str, TopicDescription]
) -> OptionError | None:
    """Returns the error of an assigned partition that the topic lacks. The description may come
    from a broker that has not learned of added partitions."""
    for name, topic in found.items():
        known = read[name].partitions if name in read else {}
        try:
            choice.check_assigned(name, topic.partition_count, known)
        except OptionError as error:
            return error
    return None


def _as_of(topic: TopicDescription) -> int:
    """Returns the store revision that the broker has seen at least: that of the topic's entry, and
    of each of its partitions."""
    return max(topic.revision, *(found.create_revision for found in topic.partitions))


def require_topic(bootstrap: str, topic: str) -> None:
    """Raises `TidelogError`: UNKNOWN_TOPIC_OR_PARTITION if brokers report that it does not
    exist."""
    with BackgroundClient(lambda: Admin(bootstrap)) as admin:
        admin.ask(lambda client: client.describe_topic(topic))


def new_lookups(bootstrap: str) -> BackgroundClient[ClusterLookups]:
    """Returns lookups that run on an event loop in their own thread."""
    return BackgroundClient(lambda: ClusterLookups(bootstrap))
