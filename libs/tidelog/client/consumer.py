"""Reads committed records from topics.

    async with Consumer("127.0.0.1:7500") as consumer:
        await consumer.assign_topic("sea")
        async for record in consumer:
            print(record.offset, record.key, record.value)

`assign` and `seek` take effect when they return. Calls that need an answer of a broker first, such
as `assign_topic` and `seek_to_end`, have to be awaited.

`poll_batches` returns batches, which cost a fraction of the records of `poll` if they are read by
column.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Generic, Self, cast

from tidelog.client.arguments import (
    checks_arguments,
    choice,
    function,
    int32,
    natural,
    offset_number,
    offset_position,
    poll_timeout,
    positive,
)
from tidelog.client.assigned_partition import GrowingTopic
from tidelog.client.batch_decoder import BatchDecoder
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.cluster_metadata import DEFAULT_METADATA_MAX_AGE_MS, ClusterMetadata
from tidelog.client.confirmation import Confirmation
from tidelog.client.connections import Connections, GrpcConnections
from tidelog.client.consumer_queries import ConsumerQueries, Partitions
from tidelog.client.fetch_state import FetchState, OnOutOfRange
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.client.fetcher import Fetcher
from tidelog.client.leader_queries import LeaderQueries
from tidelog.client.lifecycle import Lifecycle, guarded, guards_itself
from tidelog.client.offset_finder import OffsetFinder
from tidelog.client.record_deserializer import record_deserializer
from tidelog.client.record_epochs import RecordEpochs
from tidelog.client.retry import DEFAULT_MAX_BACKOFF_MS, DEFAULT_MIN_BACKOFF_MS, Backoff
from tidelog.client.unawaited_calls import UnawaitedCalls, must_be_awaited
from tidelog.client.unclean_elections import UncleanElection
from tidelog.errors import ErrorCode, InvalidArgumentError, TidelogError
from tidelog.model import (
    NO_EPOCH,
    Key_co,
    OffsetPosition,
    OnDamage,
    Record,
    TopicPartition,
    Value_co,
)
from tidelog.rpc.trace_context import captured

# Default limits of `poll` and `poll_batches`.
DEFAULT_MAX_RECORDS = 500
DEFAULT_MAX_BATCHES = 64
DEFAULT_POLL_TIMEOUT_MS = 1_000
# A poll returns early once it has opened batches for this long, so that other tasks run.
COLLECTING_MS = 20

_log = logging.getLogger(__name__)


@must_be_awaited("assign_topic", "resume", "seek_to_beginning", "seek_to_end", "seek_to_time")
@guarded
@checks_arguments(
    unchecked=("poll", "poll_batches"),
    max_wait_ms=int32(0),
    min_bytes=int32(0),
    max_bytes=int32(1),
    prefetch_bytes=positive,
    on_out_of_range=choice(OnOutOfRange),
    on_damage=choice(OnDamage),
    offsets_timeout_ms=natural,
    on_unclean_election=function,
    offset=offset_number,
    end_offset=natural,
    read_epoch=int32(NO_EPOCH),
    timestamp_ms=natural,
    key_deserializer=function,
    value_deserializer=function,
)
class Consumer(ConsumerQueries, Generic[Key_co, Value_co]):
    """Reads committed records. It belongs to one event loop. Every error is a `TidelogError`.

    - `max_wait_ms`, `min_bytes`: a leader answers a fetch when it has `min_bytes`, or after
      `max_wait_ms`.
    - `max_bytes`: approximate limit of one fetch's answer.
    - `prefetch_bytes`: approximate limit of the prefetch buffer, in decompressed bytes. Partitions
      share it evenly; each may exceed its share by one batch at most. Only one batch of all
      partitions together is decompressed at a time.
    - `on_out_of_range`: "error" raises OFFSET_OUT_OF_RANGE from `poll` until the caller seeks;
      "earliest" and "latest" seek there. This also applies if the log of a new leader does not
      continue after the records that were read; the error is then a `LogTruncatedError`, and a
      warning is logged in any case. No record is skipped. (After a seek, the preceding records
      are unknown until the first record is read.)
    - `on_damage`: "raise" raises `RecordsDamagedError` from `poll`, until the caller seeks, at
      records that are damaged on the last disk that had them; "skip" logs a warning and continues
      after them.
    - `offsets_timeout_ms`: time limit of queries for offsets.
    - `on_unclean_election`: called once for each election after which records that were read may
      be lost; a warning is logged as well.
    - `metadata_max_age_ms`: time within which added and removed partitions, and deleted topics,
      are noticed even if no fetch fails.
    - `key_deserializer`, `value_deserializer`: applied to the keys and values that `poll` and
      iteration return, except null ones, and not to `poll_batches`. Type checkers know what they
      return: `Consumer` alone is `Consumer[bytes, bytes]`. One that fails raises
      `DeserializationError`, and the position stays at its record. See `serializers`.
    - `opening_room`: bounds the large batches that consumers of one event loop hold together; see
      `BatchDecoder`.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 8 << 20,
        prefetch_bytes: int = 32 << 20,
        on_out_of_range: OnOutOfRange | str = OnOutOfRange.ERROR,
        on_damage: OnDamage | str = OnDamage.RAISE,
        offsets_timeout_ms: int = 30_000,
        on_unclean_election: Callable[[UncleanElection], None] | None = None,
        metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
        key_deserializer: Callable[[bytes], Key_co] | None = None,
        value_deserializer: Callable[[bytes], Value_co] | None = None,
        connections: Connections | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        opening_room: asyncio.Semaphore | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._lifecycle = Lifecycle("consumer", self._clock)
        self._connections = connections or GrpcConnections()
        backoff = Backoff(rng or random.Random(), DEFAULT_MIN_BACKOFF_MS, DEFAULT_MAX_BACKOFF_MS)
        self._metadata = ClusterMetadata(
            bootstrap,
            self._connections,
            self._clock,
            self._metadata_changed,
            max_age_ms=metadata_max_age_ms,
        )
        queries = LeaderQueries(
            self._metadata, self._connections, self._clock, backoff, offsets_timeout_ms
        )
        self._finder = OffsetFinder(queries)
        self._epochs = RecordEpochs(queries)
        self._state = FetchState(
            backoff,
            prefetch_bytes=prefetch_bytes,
            on_out_of_range=OnOutOfRange(on_out_of_range),
            on_damage=OnDamage(on_damage),
            deserializer=record_deserializer(key_deserializer, value_deserializer),
        )
        self._fetcher = Fetcher(
            self._state,
            self._metadata,
            self._connections,
            self._clock,
            self._finder,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            on_unclean_election=self._unclean_election,
        )
        self._opening = BatchDecoder(self._state.taking, opening_room)
        self._on_unclean_election = on_unclean_election
        self._growing: GrowingTopic | None = None
        self._unawaited = UnawaitedCalls()

    @property
    def _is_called_by_other_threads(self) -> bool:
        return self._state.taking.lending.lends

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def assign(
        self, partitions: Partitions, *, start: OffsetPosition | str = OffsetPosition.EARLIEST
    ) -> Confirmation:
        """Reads these partitions and no others, at once. New ones begin at `start` unless the
        caller seeks; partitions that were assigned before continue. `poll` reports partitions that
        do not exist; so does the result, if it is awaited."""
        requested = [TopicPartition(*partition) for partition in partitions]
        self._assign(requested, start)
        return Confirmation(partial(self._confirm, requested))

    def _assign(
        self,
        requested: list[TopicPartition],
        start: OffsetPosition | str,
        growing: GrowingTopic | None = None,
    ) -> None:
        position = offset_position("start", start)
        if position is OffsetPosition.TIMESTAMP:
            raise InvalidArgumentError("start is EARLIEST or LATEST; use seek_to_time for a time")
        self._growing = growing
        self._metadata.follow({partition.topic for partition in requested})
        # `poll` raises an error if another topic has the name by the time of the first fetch.
        topic_ids = {growing.topic: growing.topic_id} if growing is not None else {}
        self._state.assign(requested, position, topic_ids)
        self._fetcher.start()
        self._fetcher.wake()
        # Ends calls that wait for partitions which are no longer assigned.
        self._fetcher.arrived.set()

    async def assign_topic(
        self, topic: str, *, start: OffsetPosition | str = OffsetPosition.EARLIEST
    ) -> list[TopicPartition]:
        """Reads all partitions of a topic and no others; returns them. Partitions that are added
        later are assigned when they are noticed, and read from their beginning even if `start` is
        the end: all their records are newer than this call."""
        known = await self._metadata.topic(topic)
        partitions = [TopicPartition(topic, number) for number in range(known.partitions)]
        self._assign(partitions, start, GrowingTopic(topic, known.topic_id, known.partitions))
        return partitions

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions, in order."""
        return sorted(self._state.partitions)

    @property
    def buffered_bytes(self) -> int:
        """Decompressed size of the buffered batches, as their frames state it."""
        return self._state.buffered_bytes

    def position(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Returns the offset of the next record that this consumer returns; None if a newly
        assigned partition has not found its start yet."""
        return self._state.position(TopicPartition(*partition))

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> Confirmation:
        """Makes `offset` the next one to read, at once. Raises INVALID_REQUEST if the partition is
        not assigned. `poll` reports a partition that does not exist, and an offset out of range;
        the result reports the former, if it is awaited."""
        sought = self._state.get(TopicPartition(*partition)).partition
        self._seek(sought, offset)
        return Confirmation(partial(self._confirm, (sought,)))

    async def _confirm(self, partitions: Sequence[TopicPartition]) -> None:
        last: dict[str, TopicPartition] = {}
        for partition in sorted(partitions):
            last[partition.topic] = partition
        with self._lifecycle.call():
            await self._lifecycle.checkpoint()
            # A topic that has this partition has all before it.
            for partition in last.values():
                await self._metadata.check_partition(partition)

    async def resume(
        self,
        partition: TopicPartition | tuple[str, int],
        offset: int,
        *,
        topic_id: str,
        read_epoch: int = NO_EPOCH,
        end_offset: int | None = None,
    ) -> None:
        """Continues where another consumer has ended; assigns the partition if necessary.

        - `offset`: the next offset to read.
        - `topic_id`: of the topic that was read. `poll` raises UNKNOWN_TOPIC_ID if another topic
          has the name.
        - `read_epoch`: leader epoch of the record before `offset`. It is compared with the log:
          `on_out_of_range` applies if the log was truncated. NO_EPOCH: nothing is compared.
        - `end_offset`: nothing is fetched from here on; the last batch may extend beyond."""
        name = TopicPartition(*partition)
        await self._metadata.check_partition(name)
        assigned = self._state.partitions
        if name not in assigned:
            self._state.assign([*assigned, name], OffsetPosition.EARLIEST)
            self._metadata.follow({partition.topic for partition in self._state.partitions})
        self._state.taking.lending.recall()
        self._state.get(name).resume(offset, topic_id, read_epoch, end_offset)
        self._fetcher.start()
        self._fetcher.wake()

    async def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Seeks to the start of the logs; without `partitions`, of all that are assigned."""
        await self._seek_to(self._chosen(partitions), OffsetPosition.EARLIEST)

    async def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Seeks to the end of the committed records; without `partitions`, in all that are
        assigned."""
        await self._seek_to(self._chosen(partitions), OffsetPosition.LATEST)

    async def seek_to_time(self, timestamp_ms: int, partitions: Partitions | None = None) -> None:
        """Seeks to the first record at or after a time (milliseconds since 1970, UTC), or to the
        end if there is none; without `partitions`, in all that are assigned."""
        found = await self.offsets_at_time(timestamp_ms, self._chosen(partitions))
        for partition, offset in found.items():
            self._seek(partition, offset)

    @guards_itself
    async def poll(
        self,
        timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS,
        max_records: int = DEFAULT_MAX_RECORDS,
    ) -> list[Record[Key_co, Value_co]]:
        """Returns records as soon as there are any: `max_records` at most, or those opened within
        COLLECTING_MS; none after `timeout_ms`. A cancelled poll has taken none. Raises
        INVALID_REQUEST if nothing is assigned, as do `poll_batches` and iteration."""
        poll_timeout("timeout_ms", timeout_ms)
        positive("max_records", max_records)
        self._fetcher.trace_context = captured()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        with self._lifecycle.call():
            await self._lifecycle.checkpoint()
            opened = False
            while not (records := self._take(max_records)):
                # Another call may have taken all opened records.
                if opened and self._clock.monotonic_ms() >= deadline_ms:
                    return []
                opened = await self._opening.open_costly()
                if not opened and not await self._wait_until(deadline_ms):
                    return []
            return records

    @guards_itself
    async def poll_batches(
        self,
        timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS,
        max_batches: int = DEFAULT_MAX_BATCHES,
    ) -> list[FetchedBatch]:
        """Returns batches as soon as there are any; none after `timeout_ms`. A cancelled poll has
        taken none."""
        poll_timeout("timeout_ms", timeout_ms)
        positive("max_batches", max_batches)
        self._fetcher.trace_context = captured()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        with self._lifecycle.call():
            await self._lifecycle.checkpoint()
            while True:
                self._prepare_to_take()
                batches = self._state.take_batches(max_batches)
                self._fetcher.confirm_missing()
                if batches:
                    self._fetcher.wake()
                    return batches
                if not await self._wait_until(deadline_ms):
                    return []

    def __aiter__(self) -> Self:
        return self

    @guards_itself
    async def __anext__(self) -> Record[Key_co, Value_co]:
        """Waits for the next record without a time limit."""
        self._lifecycle.check()
        # Open records are quick to take, so other tasks get their turn only now and then.
        if not self._lifecycle.is_yield_due(self._clock.monotonic_ms()) and (
            records := self._take(1)
        ):
            return records[0]
        with self._lifecycle.call():
            await asyncio.sleep(0)
            while not (records := self._take(1)):
                if await self._opening.open_costly():
                    continue
                self._fetcher.trace_context = captured()
                await self._fetcher.arrived.wait()
                await self._state.taking.lending.wait_until_woken()
            return records[0]

    @guards_itself
    async def close(self) -> None:
        """Ends calls in progress with CLIENT_CLOSED. Can be cancelled, and repeated."""
        await self._lifecycle.close(self._finish, self._connections.close)

    async def _finish(self) -> None:
        await self._opening.stop()
        await self._fetcher.stop()
        await self._metadata.close()
        await self._connections.close()

    def _take(self, max_records: int) -> list[Record[Key_co, Value_co]]:
        """Takes records. The caller must return them without awaiting, or a cancellation would
        lose them."""
        self._prepare_to_take()
        if max_records == 1:
            records = self._state.take_records(1)
        else:
            until_ms = self._clock.monotonic_ms() + COLLECTING_MS
            records = self._state.take_records(
                max_records, lambda: self._clock.monotonic_ms() >= until_ms
            )
        if records:
            self._fetcher.wake()
        self._fetcher.confirm_missing()
        # What the deserializers of this consumer have made of them.
        return cast("list[Record[Key_co, Value_co]]", records)

    def _prepare_to_take(self) -> None:
        if self._unawaited.kept:
            self._unawaited.check()
        if not self._state.has_partitions:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                "the consumer has no assigned partition to read; call assign_topic or assign first",
            )
        self._fetcher.arrived.clear()
        self._fetcher.check()

    async def _wait_until(self, deadline_ms: int) -> bool:
        """Returns False once the time is up. Other tasks have run in any case."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            await asyncio.sleep(0)
            return False
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._fetcher.arrived.wait()
                await self._state.taking.lending.wait_until_woken()
                return True
        except TimeoutError:
            return False

    def _chosen(self, partitions: Partitions | None) -> list[TopicPartition]:
        if partitions is None:
            return self._state.partitions
        return [self._state.get(TopicPartition(*partition)).partition for partition in partitions]

    async def _seek_to(self, chosen: list[TopicPartition], position: OffsetPosition) -> None:
        offsets = await self._finder.find_with_epochs(chosen, position)
        self._state.taking.lending.recall()
        for partition, found in offsets.items():
            self._state.get(partition).found(found.offset, found.topic_id)
        self._assign_added()
        self._fetcher.wake()

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._state.taking.lending.recall()
        self._state.get(partition).seek(offset)
        self._assign_added()
        self._fetcher.wake()

    def _metadata_changed(self) -> None:
        self._assign_added()
        self._fetcher.metadata_changed()

    def _assign_added(self) -> None:
        growing = self._growing
        known = self._metadata.cached_topic(growing.topic) if growing is not None else None
        if growing is None or known is None:
            return
        first, kept = growing.partitions, self._state.partitions
        if known.topic_id != growing.topic_id:
            # A later topic of the name is a different one: `poll` raises an error before a seek.
            if not self._state.has_sought_in(growing.topic, known.topic_id):
                return
            first = 0
            kept = [p for p in kept if p.topic != growing.topic or p.partition < known.partitions]
        elif known.partitions <= first:
            return
        new = [TopicPartition(growing.topic, n) for n in range(first, known.partitions)]
        self._assign(
            list(dict.fromkeys([*kept, *new])),
            OffsetPosition.EARLIEST,
            growing._replace(topic_id=known.topic_id, partitions=known.partitions),
        )

    def _unclean_election(self, election: UncleanElection) -> None:
        _log.warning(
            "unclean election of %s in leader epoch %d: records below offset %d, which were "
            "read in leader epoch %d or before, may be gone",
            *election,
        )
        if self._on_unclean_election is not None:
            asyncio.get_running_loop().call_soon(self._on_unclean_election, election)
