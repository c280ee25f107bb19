"""What a driver asks the cluster: which topics there are, and where their logs begin and end."""

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

# A topic that brokers have denied for this long is gone; until then they may be behind. Every look
# begins with another broker, so that one which is cut off from etcd is not believed alone.
GONE_AFTER_MS = 5_000
LOOK_PAUSE_MS = 200
# So long it is tried to get answers that fit together.
LOOK_TIMEOUT_MS = 30_000
OFFSETS_TIMEOUT_MS = 60_000


class ClusterLookups:
    """Belongs to one event loop. Every error is a `TidelogError`."""

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
        """The topics and partitions chosen. One that was `read` is missing where it is gone for
        certain. One that is neither there nor was read is missing, too, or with `must_exist` an
        error: UNKNOWN_TOPIC_OR_PARTITION, or for a partition an `OptionError`."""
        give_up_ms = self._clock.monotonic_ms() + LOOK_TIMEOUT_MS
        while True:
            topics = await self._topics(choice, read, must_exist)
            now = await self._with_offsets(choice, topics)
            if now is not None and not behind(read, now):
                return now
            if self._clock.monotonic_ms() >= give_up_ms:
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"what brokers told of {', '.join(sorted(topics))} did not fit together for "
                    f"{LOOK_TIMEOUT_MS} ms: some are behind; check that they reach etcd",
                )
            await asyncio.sleep(LOOK_PAUSE_MS / 1000)

    async def _topics(
        self, choice: TopicChoice, read: StreamOffsets, must_exist: bool
    ) -> dict[str, TopicDescription]:
        since_ms = self._clock.monotonic_ms()
        while True:
            found = await self._found(choice)
            missing = [name for name in read if choice.matches(name) and name not in found]
            wrong = _assigned_wrongly(choice, read, found) if must_exist else None
            gone = self._clock.monotonic_ms() - since_ms >= GONE_AFTER_MS
            if not missing and wrong is None:
                break
            if gone and wrong is not None:
                raise wrong
            if gone:
                break
            await asyncio.sleep(LOOK_PAUSE_MS / 1000)
        for name in choice.named if must_exist else ():
            if name not in found and name not in read:
                # Tries some brokers, and raises what they say.
                found[name] = await self._admin.describe_topic(name)
        return found

    async def _found(self, choice: TopicChoice) -> dict[str, TopicDescription]:
        if choice.pattern is None:
            told = await self._admin.find_topics(choice.named)
        else:
            told = [t for t in await self._admin.list_topics() if choice.matches(t.name)]
        # Without a partition it is still being created.
        return {topic.name: topic for topic in told if topic.partition_count}

    async def _with_offsets(
        self, choice: TopicChoice, topics: Mapping[str, TopicDescription]
    ) -> ClusterNow | None:
        """None: the leaders told offsets of other topics or partitions than these."""
        partitions = [
            TopicPartition(name, number)
            for name, topic in topics.items()
            for number in choice.partitions(name, topic.partition_count)
        ]
        try:
            first = await self._consumer.told_offsets(OffsetPosition.EARLIEST, partitions)
            last = await self._consumer.told_offsets(OffsetPosition.LATEST, partitions)
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
            # A partition that was added again is led in newer epochs than the former one ever was.
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

    async def at_times(self, wanted: Mapping[int, Iterable[TopicPartition]]) -> AtTimes:
        found: dict[TopicPartition, int] = {}
        for time_ms, partitions in wanted.items():
            told = await self._consumer.told_offsets(
                OffsetPosition.TIMESTAMP, partitions, timestamp_ms=time_ms
            )
            found |= {partition: at.offset for partition, at in told.items()}
        return found

    async def epochs_before(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The leader epoch of the record before each offset; NO_EPOCH where there is none any
        more, or it cannot be read."""
        wanted = {partition: offset - 1 for partition, offset in offsets.items() if offset}
        told = await self._consumer.record_epochs(wanted)
        return {p: told[p].record_epoch if p in told else NO_EPOCH for p in offsets}

    async def truncations(
        self, read: Mapping[TopicPartition, ReadTo]
    ) -> dict[TopicPartition, Truncation]:
        """Where logs have other records than were read. Only a leader of a later epoch than that
        of the last record is evidence."""
        told = await self._consumer.record_epochs({p: at.offset - 1 for p, at in read.items()})
        found: dict[TopicPartition, Truncation] = {}
        for partition, at in read.items():
            record = told[partition]
            expired = at.offset - 1 < record.log_start_offset
            newer = record.leader_epoch > at.leader_epoch
            # A record that was damaged after it was read is no evidence.
            if (
                newer
                and not record.damaged
                and not expired
                and record.record_epoch != at.leader_epoch
            ):
                found[partition] = await self._truncated(partition, at)
        return found

    async def _truncated(self, partition: TopicPartition, at: ReadTo) -> Truncation:
        """By halves: leader epochs never fall along a log."""
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


def _assigned_wrongly(
    choice: TopicChoice, read: StreamOffsets, found: Mapping[str, TopicDescription]
) -> OptionError | None:
    """As some broker sees it, which may be behind an addition of partitions."""
    for name, topic in found.items():
        known = read[name].partitions if name in read else {}
        try:
            choice.check_assigned(name, topic.partition_count, known)
        except OptionError as error:
            return error
    return None


def _as_of(topic: TopicDescription) -> int:
    """Whoever told it knew the store at this revision: its entry, and each of its partitions."""
    return max(topic.revision, *(found.create_revision for found in topic.partitions))


def require_topic(bootstrap: str, topic: str) -> None:
    """Raises `TidelogError`: UNKNOWN_TOPIC_OR_PARTITION where brokers say that it is not there."""
    with BackgroundClient(lambda: Admin(bootstrap)) as admin:
        admin.ask(lambda asked: asked.describe_topic(topic))


def new_lookups(bootstrap: str) -> BackgroundClient[ClusterLookups]:
    """On an event loop in a thread of its own."""
    return BackgroundClient(lambda: ClusterLookups(bootstrap))
