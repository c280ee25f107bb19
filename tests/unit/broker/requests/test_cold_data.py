"""Requests for data that is only on the disk: threads read it, and no other request waits."""

from __future__ import annotations

import asyncio
import errno
from itertools import count

import pytest

from tidelog import record_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, Batch, OffsetPosition
from tidelog_broker.core.fetch_messages import (
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.replication.move_throttle import MoveThrottle
from tidelog_broker.requests.consumer_fetch import (
    ConsumerFetch,
    FetchEntry,
    FetchOutcome,
    FetchWait,
)
from tidelog_broker.requests.list_offsets import FoundOffset, ListOffsets, ListOffsetsEntry
from tidelog_broker.requests.replica_fetch import ReplicaFetch
from unit.broker.broker_parts import (
    append,
    commit,
    in_place,
    position,
    stop_command,
    until_idle,
)
from unit.broker.cold_disk import ColdReplicas, cold_replicas
from unit.broker.fake_log import NAME, epoch_of

FOLLOWER = 2


class Leader:
    def __init__(self, replicas: ColdReplicas) -> None:
        self.replicas = replicas
        parts = replicas.manager, replicas.purgatory, replicas.clock
        throttle = MoveThrottle(1, replicas.cache, replicas.clock, lambda: None)
        self._replica_fetch = ReplicaFetch(*parts, throttle, replicas.cold_reads)
        self._consumer_fetch = ConsumerFetch(*parts, replicas.cold_reads)
        self._list_offsets = ListOffsets(
            replicas.manager, timestamps_of, replicas.cold_reads, in_place
        )
        self._sessions = count(1)

    def followed(self, *partitions: Partition) -> asyncio.Task[ReplicaFetchResponse]:
        """A fetch by a follower from the beginning of each partition."""
        entries = [ReplicaFetchEntry(p.key, position(p, 0), max_bytes=1 << 20) for p in partitions]
        request = ReplicaFetchRequest(
            broker_id=FOLLOWER,
            broker_epoch=epoch_of(FOLLOWER),
            leader_broker_epoch=epoch_of(1),
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            entries=entries,
            session_sequence=next(self._sessions),
        )
        return asyncio.create_task(self._replica_fetch.handle(request))

    def consumed(
        self, *partitions: Partition, max_wait_ms: int = 500, min_bytes: int = 1
    ) -> asyncio.Task[list[FetchOutcome]]:
        entries = [FetchEntry(p.name, "", -1, 0, 1 << 20) for p in partitions]
        wait = FetchWait(max_wait_ms, min_bytes, 1 << 20)
        return asyncio.create_task(self._consumer_fetch.handle(entries, wait))

    def searched(self, timestamp_ms: int) -> asyncio.Task[FoundOffset]:
        entry = ListOffsetsEntry(NAME, "", -1, OffsetPosition.TIMESTAMP, timestamp_ms)
        return asyncio.create_task(self._list_offsets.handle(entry))


def timestamps_of(batch: Batch) -> list[int]:
    return record_batch.decode(batch).timestamps_ms


async def is_answered(task: asyncio.Task[object]) -> bool:
    """Whether the request is answered when only a thread could still make progress."""
    await until_idle()
    return task.done()


def followed_offsets(response: ReplicaFetchResponse) -> dict[int, list[int]]:
    """The offsets of each answered partition."""
    found = {}
    for result in response.results:
        assert result.answer is not None
        batches = result.answer.batches
        found[result.replica.partition] = [batch.header.base_offset for batch in batches]
    return found


def offsets(outcomes: list[FetchOutcome]) -> list[list[int]]:
    answers = [outcome.answer for outcome in outcomes if outcome.answer is not None]
    return [[batch.header.base_offset for batch in answer.batches] for answer in answers]


async def cold_partition(replicas: ColdReplicas, number: int = 0) -> Partition:
    partition = await replicas.lead(number)
    commit(partition, b"a" * 100, b"b" * 100)
    replicas.memory.evict()
    return partition


async def test_a_follower_waits_for_a_thread_and_is_answered_when_it_has_read() -> None:
    async with cold_replicas() as replicas:
        partition = await cold_partition(replicas)
        fetch = Leader(replicas).followed(partition)
        assert not await is_answered(fetch)
        await replicas.threads.end()
        assert followed_offsets(await fetch) == {0: [0, 1]}
        assert replicas.waits == 0
        assert replicas.clock.monotonic_ms() == 0


@pytest.mark.rule("disk-reads-off-event-loop")
async def test_a_follower_gets_data_in_memory_beside_cold_data() -> None:
    async with cold_replicas() as replicas:
        cold = await cold_partition(replicas)
        cached = await replicas.lead(1)
        append(cached)
        fetch = Leader(replicas).followed(cold, cached)
        assert followed_offsets(await fetch) == {1: [0]}
        assert replicas.waits == 0


async def test_growth_of_another_partition_wakes_a_follower_that_waits_for_a_thread() -> None:
    async with cold_replicas() as replicas:
        cold = await cold_partition(replicas)
        other = await replicas.lead(1)
        fetch = Leader(replicas).followed(cold, other)
        assert not await is_answered(fetch)
        append(other)
        assert followed_offsets(await fetch) == {1: [0]}


async def test_at_its_deadline_a_follower_is_answered_without_cold_data() -> None:
    async with cold_replicas() as replicas:
        fetch = Leader(replicas).followed(await cold_partition(replicas))
        assert followed_offsets(await fetch) == {}
        assert replicas.clock.monotonic_ms() == 500


@pytest.mark.rule("disk-reads-off-event-loop")
async def test_a_consumer_waits_for_a_thread_and_is_answered_when_it_has_read() -> None:
    async with cold_replicas() as replicas:
        fetch = Leader(replicas).consumed(await cold_partition(replicas))
        assert not await is_answered(fetch)
        await replicas.threads.end()
        assert offsets(await fetch) == [[0, 1]]
        assert replicas.waits == 0
        assert replicas.clock.monotonic_ms() == 0


async def test_a_consumer_gets_data_in_memory_beside_cold_data() -> None:
    async with cold_replicas() as replicas:
        cold = await cold_partition(replicas)
        cached = await replicas.lead(1)
        commit(cached)
        assert offsets(await Leader(replicas).consumed(cold, cached)) == [[], [0]]
        assert replicas.waits == 0


async def test_a_consumer_that_asks_for_no_bytes_waits_for_cold_data() -> None:
    async with cold_replicas() as replicas:
        fetch = Leader(replicas).consumed(await cold_partition(replicas), min_bytes=0)
        assert not await is_answered(fetch)
        await replicas.threads.end()
        assert offsets(await fetch) == [[0, 1]]


async def test_a_consumer_that_never_waits_is_answered_as_soon_as_a_thread_has_read() -> None:
    async with cold_replicas() as replicas:
        leader, partition = Leader(replicas), await cold_partition(replicas)
        assert offsets(await leader.consumed(partition, max_wait_ms=0)) == [[]]
        await replicas.threads.end()
        assert offsets(await leader.consumed(partition, max_wait_ms=0)) == [[0, 1]]
        assert replicas.waits == 0


@pytest.mark.rule("disk-reads-off-event-loop")
async def test_data_evicted_before_it_is_fetched_is_waited_for_once() -> None:
    async with cold_replicas() as replicas:
        leader, partition = Leader(replicas), await cold_partition(replicas)
        for rounds in (1, 2):
            assert offsets(await leader.consumed(partition, max_wait_ms=0)) == [[]]
            await replicas.threads.end()
            replicas.memory.evict()
            assert offsets(await leader.consumed(partition, max_wait_ms=0)) == [[0, 1]]
            assert replicas.waits == rounds
            replicas.memory.evict()


async def test_unreadable_data_is_a_disk_fault() -> None:
    async with cold_replicas() as replicas:
        fetch = Leader(replicas).consumed(await cold_partition(replicas))
        await until_idle()
        replicas.memory.failing_reads = 1
        await replicas.threads.end()
        (outcome,) = await fetch
        assert outcome.error is not None
        assert outcome.error.code is ErrorCode.LEADER_NOT_AVAILABLE
        ((key, error),) = replicas.failures
        assert (key.partition, getattr(error, "errno", None)) == (0, errno.EIO)


async def test_damage_in_cold_data_is_found() -> None:
    async with cold_replicas() as replicas:
        partition = await cold_partition(replicas)
        segment = next(path for path in replicas.memory.paths() if path.suffix == ".log")
        replicas.memory.flip_bit(segment, 90, 0)
        fetch = Leader(replicas).followed(partition)
        await until_idle()
        await replicas.threads.end()
        (result,) = (await fetch).results
        assert result.error is not None
        ((_, error),) = replicas.failures
        assert "damaged at byte 0" in str(error)


async def test_a_partition_removed_during_the_read_is_answered_as_such() -> None:
    async with cold_replicas() as replicas:
        leader, partition = Leader(replicas), await cold_partition(replicas)
        consumed, followed = leader.consumed(partition), leader.followed(partition)
        assert not await is_answered(consumed)
        await replicas.commands.stop_replica(stop_command(20))
        (outcome,) = await consumed
        assert outcome.error is not None
        await replicas.threads.end()
        (result,) = (await followed).results
        assert result.error is not None
        assert result.error.code is ErrorCode.UNKNOWN_TOPIC_ID
        assert replicas.failures == []


async def test_a_leadership_that_ends_during_the_read_is_answered_as_such() -> None:
    async with cold_replicas() as replicas:
        leader, partition = Leader(replicas), await cold_partition(replicas)
        search, followed = leader.searched(0), leader.followed(partition)
        assert not await is_answered(search)
        partition.stop_leading()
        await replicas.threads.end()
        with pytest.raises(TidelogError):
            await search
        (result,) = (await followed).results
        assert result.error is not None


@pytest.mark.rule("disk-reads-off-event-loop")
async def test_a_search_by_time_waits_for_a_thread() -> None:
    async with cold_replicas() as replicas:
        partition = await replicas.lead()
        batch = record_batch.encode([b"v", b"w"], timestamps_ms=[10, 20])
        partition.append([batch], Acks.LEADER, 1)
        commit(partition)
        replicas.memory.evict()
        search = Leader(replicas).searched(15)
        assert not await is_answered(search)
        await replicas.threads.end_all()
        assert (await search).offset == 1
        assert replicas.waits == 0


@pytest.mark.rule("disk-reads-off-event-loop")
async def test_fetches_and_searches_wait_for_a_thread_to_rebuild_a_lost_index() -> None:
    async with cold_replicas() as replicas:
        config = {"segment_bytes": str(1 << 20)}
        (partition,) = await replicas.take(config=config)
        # More batches than those whose positions memory keeps.
        for number in range(400):
            batch = record_batch.encode([bytes(4 << 10)], timestamps_ms=[number])
            partition.append([batch], Acks.LEADER, 1)
        commit(partition)
        lost = min(path for path in replicas.memory.paths() if path.suffix == ".index")
        replicas.memory.remove(lost)
        log = replicas.logs.log_of(partition.key)
        assert log is not None
        log.share_files(SegmentFiles(replicas.memory))  # as when its file is evicted
        fetch, search = Leader(replicas).consumed(partition), Leader(replicas).searched(7)
        assert not await is_answered(fetch)
        assert not await is_answered(search)
        await replicas.threads.end_all()
        assert offsets(await fetch)[0][0] == 0
        assert (await search).offset == 7
        assert lost in replicas.memory.paths()


async def test_a_fetch_reads_no_more_from_the_disk_than_it_may_return() -> None:
    async with cold_replicas() as replicas:
        partitions = [await replicas.lead(number) for number in range(3)]
        for partition in partitions:
            commit(partition, b"x" * (400 << 10), b"x" * (400 << 10))
        replicas.memory.evict()
        fetch = Leader(replicas).consumed(*partitions)
        await until_idle()
        assert len(replicas.cold_reads) == 2
        await replicas.threads.end()
        assert sum(map(len, offsets(await fetch))) == 2


async def test_the_lag_of_a_follower_is_known_without_waiting_for_the_disk() -> None:
    async with cold_replicas() as replicas:
        partition = await cold_partition(replicas)
        assert partition.log.append_time_of(0) is None
        assert replicas.waits == 0
