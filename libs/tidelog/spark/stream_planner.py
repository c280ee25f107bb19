"""Plans what each micro-batch of a stream reads, in its driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.spark import boundaries
from tidelog.spark.boundary_epochs import with_boundary_epochs
from tidelog.spark.cluster_lookups import ClusterLookups
from tidelog.spark.data_loss import (
    ClusterNow,
    Continuation,
    DataLossError,
    Truncation,
    continuation,
    to_verify,
)
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import OffsetRange, limit_sizes, split
from tidelog.spark.stream_offsets import (
    ReadTo,
    Split,
    StreamOffsets,
    TopicOffsets,
    begins,
    with_begins,
)

_log = logging.getLogger(__name__)


class StreamPlanner:
    """Plans micro-batches. Raises only `TidelogError`.

    Raises `DataLossError` if the stream cannot continue where it ended. If that is allowed, it logs
    a warning instead.
    """

    def __init__(self, options: ReadOptions, lookups: ClusterLookups) -> None:
        self._options = options
        self._lookups = lookups
        # The cluster's last answer, and where the stream last continued with one.
        self._now: ClusterNow = {}
        self._continued: tuple[StreamOffsets, Continuation] | None = None
        # Start and end of the micro-batch that was planned with the cluster's current state.
        self._planned: tuple[StreamOffsets, StreamOffsets] | None = None
        # The state at which a bounded stream ends.
        self._ends_at: ClusterNow | None = None
        self._is_bounded = False
        # Positions that were verified against a leader, with its epoch.
        self._verified: dict[TopicPartition, tuple[ReadTo, int]] = {}
        # Topics whose absence has been logged.
        self._warned_absent: set[str] = set()

    async def close(self) -> None:
        await self._lookups.close()

    def bound(self) -> None:
        """Ends the stream where the logs end at the next call of `next_end`."""
        self._is_bounded = True
        self._ends_at = None

    async def initial(self) -> StreamOffsets:
        """Raises `OptionError` for offsets that are not in the log."""
        now = await self._lookups.now(self._options.topics, {})
        named = boundaries.partitions_of(now)
        times = boundaries.requested_times(self._options.starting, named)
        first = boundaries.starts(self._options, now, await self._lookups.at_times(times))
        return await self._with_epochs(now, {}, first)

    async def next_end(self, read: StreamOffsets, max_offsets: int | None) -> StreamOffsets:
        """Returns how far the next batch goes; equal to `read` if there is nothing new."""
        read = self._options.topics.still_read(read)
        now = self._ends_at
        if now is None:
            now = await self._now_of(read)
        if self._is_bounded:
            self._ends_at = now
        self._now = now
        continued = await self._continue(read, now)
        starts = continued.offsets
        sizes = {
            TopicPartition(topic, partition): max(
                now[topic].partitions[partition].end - at.offset, 0
            )
            for topic, of_topic in starts.items()
            for partition, at in of_topic.partitions.items()
        }
        if max_offsets is not None:
            turn = sum(at.offset for t in starts.values() for at in t.partitions.values())
            sizes = limit_sizes(sizes, max_offsets, turn)
        ends = {
            name: starts[name.topic].partitions[name.partition].offset + size
            for name, size in sizes.items()
        }
        end = with_begins(await self._with_epochs(now, starts, ends), read, starts)
        self._planned = (read, end)
        return end

    @property
    def latest(self) -> StreamOffsets:
        """Where the logs ended at the last request."""
        return {
            topic: TopicOffsets(
                state.topic_id,
                state.create_revision,
                {partition: ReadTo(at.end) for partition, at in state.partitions.items()},
                state.as_of,
            )
            for topic, state in self._now.items()
        }

    async def ranges(
        self, start: StreamOffsets, end: StreamOffsets, planned: Split | None = None
    ) -> list[OffsetRange]:
        """Returns the tasks of a micro-batch.

        The same offsets give the same tasks: a repeated batch reads the same, unless something is
        lost. `planned`: the split that was planned; otherwise that of the options.
        """
        if start == end:
            return []
        topics = self._options.topics
        start = topics.still_read(start)
        starts = topics.still_read(begins(start, end))
        if self._planned != (start, end):
            # A batch of a previous driver is repeated: all of it is verified, its new partitions
            # included.
            starts = (await self._continue(starts, await self._now_of(starts))).offsets
        ranges = []
        for topic, to in sorted(end.items()):
            of_topic = starts.get(topic)
            if of_topic is None or of_topic.topic_id != to.topic_id:
                # It is gone, which was reported, or is no longer chosen by the options.
                continue
            for partition, at in sorted(to.partitions.items()):
                begin = of_topic.partitions.get(partition, at)
                name = TopicPartition(topic, partition)
                ranges.append(OffsetRange(name, to.topic_id, to.create_revision, begin, at))
        parts = split(ranges, *(planned or self._options.split))
        return await with_boundary_epochs(parts, self._lookups)

    async def _now_of(self, read: StreamOffsets) -> ClusterNow:
        """A loss that was accepted is no error later: what is gone is no longer in `read`."""
        must_exist = self._options.fail_on_data_loss
        now = await self._lookups.now(self._options.topics, read, must_exist=must_exist)
        self._warn_of_absent(read, now)
        return now

    def _warn_of_absent(self, read: StreamOffsets, now: ClusterNow) -> None:
        """Logs each absent topic once. The loss of a topic in `read` is reported instead."""
        absent = set(self._options.topics.named) - set(now) - self._warned_absent
        for topic in sorted(absent - set(read)):
            _log.warning(
                "brokers report that topic %r does not exist: it is read once it exists; "
                "check its name",
                topic,
            )
        self._warned_absent |= absent

    async def _continue(self, read: StreamOffsets, now: ClusterNow) -> Continuation:
        found = continuation(read, now, await self._truncations(read, now))
        reported_before = self._continued is not None and self._continued == (read, found)
        self._continued = (read, found)
        if found.losses and self._options.fail_on_data_loss:
            raise DataLossError(found.losses)
        for loss in () if reported_before else found.losses:
            _log.warning("%s", loss)
        return found

    async def _truncations(
        self, read: StreamOffsets, now: ClusterNow
    ) -> Mapping[TopicPartition, Truncation]:
        epochs = {
            TopicPartition(topic, partition): at.leader_epoch
            for topic, state in now.items()
            for partition, at in state.partitions.items()
        }
        requested = {
            name: at
            for name, at in to_verify(read, now).items()
            if self._verified.get(name) != (at, epochs[name])
        }
        if not requested:
            return {}
        found = await self._lookups.truncations(requested)
        self._verified |= {
            name: (at, epochs[name]) for name, at in requested.items() if name not in found
        }
        return found

    async def _with_epochs(
        self, now: ClusterNow, starts: StreamOffsets, ends: Mapping[TopicPartition, int]
    ) -> StreamOffsets:
        """Adds the leader epochs of the records before the ends.

        Epochs never decrease along a log. Between a record and an end that the leader of the same
        epoch reported there is no other epoch, and no request is needed.
        """
        known: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, int] = {}
        for name, end in ends.items():
            state = now[name.topic].partitions[name.partition]
            at = ReadTo(state.start)
            if name.topic in starts:
                at = starts[name.topic].partitions[name.partition]
            if end <= at.offset or at.leader_epoch == state.leader_epoch:
                known[name] = at.leader_epoch if end else NO_EPOCH
            else:
                offsets[name] = end
        if offsets:
            known |= await self._lookups.epochs_before(offsets)
        return {
            topic: TopicOffsets(
                state.topic_id,
                state.create_revision,
                {
                    partition: ReadTo(
                        ends[TopicPartition(topic, partition)],
                        known[TopicPartition(topic, partition)],
                    )
                    for partition in state.partitions
                },
                state.as_of,
            )
            for topic, state in now.items()
        }
