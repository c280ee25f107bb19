"""When a consumer raises the errors of its partitions."""

from __future__ import annotations

import random

import pytest

from tidelog.batch import stamp
from tidelog.client import Consumer, LogTruncatedError
from tidelog.client.fetch_state import Fetched, FetchState, OnOutOfRange
from tidelog.client.retry import Backoff, Leader
from tidelog.errors import ErrorCode, TidelogError, UnknownTopicError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.record_batch import encode
from unit.client.idempotent_world import World, milliseconds, story
from unit.client.test_unclean_elections import append, read

AGE_MS = 1_000
SEA = TopicPartition("sea", 0)
BUSY, FAILED = TopicPartition("sea", 0), TopicPartition("sea", 1)


# -- beside a busy partition -------------------------------------------------------------


class Busy:
    """Two partitions, one of which is refilled before each call. A batch has ten records."""

    def __init__(self) -> None:
        self.state = FetchState(
            Backoff(random.Random(1), 50, 50),
            prefetch_bytes=1_000,
            on_out_of_range=OnOutOfRange.ERROR,
        )
        self.state.assign([BUSY, FAILED], OffsetPosition.EARLIEST)
        for partition in (BUSY, FAILED):
            self.state.get(partition).seek(0)

    def fill(self, partition: TopicPartition, batches: int = 4) -> None:
        """Receives an answer with this many batches, if the partition has room for any."""
        leader = Leader(1, 1, "one:1", "id")
        plans = self.state.plan(0, lambda p: leader if p == partition else None)
        for plan in plans:
            self.state.finish(plan)
            for want, _ in plan.wants:
                answer = [
                    stamp(
                        encode([b"x"] * 10, timestamps_ms=1),
                        base_offset=want.offset + 10 * number,
                        leader_epoch=1,
                        append_time_ms=1,
                    )
                    for number in range(batches)
                ]
                self.state.received(want, leader, Fetched(1, 99, 0, answer), 0)

    def fail(self) -> None:
        error = TidelogError(ErrorCode.CORRUPT_BATCH, "damaged")
        self.state.errors.add(self.state.get(FAILED), error)

    def take(self, batches: bool) -> set[TopicPartition]:
        """Makes one call; returns the partitions of the records."""
        self.fill(BUSY)
        if batches:
            return {batch.partition for batch in self.state.take_batches(1)}
        return {TopicPartition(r.topic, r.partition) for r in self.state.take_records(15)}


by_call = pytest.mark.parametrize("batches", [False, True], ids=["records", "batches"])


@by_call
def test_a_new_error_is_raised_by_the_next_call_even_if_others_have_records(batches: bool) -> None:
    busy = Busy()
    busy.take(batches)
    busy.fail()
    with pytest.raises(TidelogError, match="damaged"):
        busy.take(batches)


@by_call
def test_a_raised_error_does_not_block_other_partitions(batches: bool) -> None:
    busy = Busy()
    busy.fail()
    with pytest.raises(TidelogError, match="damaged"):
        busy.take(batches)
    assert [busy.take(batches) for _ in range(10)] == [{BUSY}] * 10
    busy.state.get(BUSY).seek(None)
    with pytest.raises(TidelogError, match="damaged"):
        busy.state.take_batches(1) if batches else busy.state.take_records(15)


@by_call
def test_records_before_an_error_are_returned_beside_a_busy_partition(batches: bool) -> None:
    busy = Busy()
    busy.take(batches)
    busy.fill(FAILED, batches=1)
    busy.fail()
    taken: set[TopicPartition] = set()

    def take_on() -> None:
        for _ in range(10):
            taken.update(busy.take(batches))

    with pytest.raises(TidelogError, match="damaged"):
        take_on()
    assert FAILED in taken


@by_call
def test_a_seek_discards_a_pending_error(batches: bool) -> None:
    busy = Busy()
    busy.fail()
    busy.state.get(FAILED).seek(0)
    assert busy.take(batches) == {BUSY}


def test_an_error_of_an_unassigned_partition_is_not_raised() -> None:
    busy = Busy()
    busy.fail()
    busy.state.assign([BUSY], OffsetPosition.EARLIEST)
    assert busy.take(batches=False) == {BUSY}


# -- partitions that are missing, and return ----------------------------------------------


async def one_error(consumer: Consumer) -> TidelogError:
    with pytest.raises(TidelogError) as raised:
        await consumer.poll(2 * AGE_MS)
    return raised.value


@pytest.mark.parametrize("gone_ms", [0, AGE_MS // 2, 2 * AGE_MS], ids=lambda ms: f"{ms}ms")
@pytest.mark.parametrize("back_ms", [0, AGE_MS // 2, 2 * AGE_MS], ids=lambda ms: f"{ms}ms")
def test_a_recreated_topic_is_one_error_and_one_seek(gone_ms: int, back_ms: int) -> None:
    """Also if the consumer has noticed the deletion, and nothing since."""

    @story
    async def scenario(world: World) -> None:
        append(world, b"of the former")
        async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
            consumer.assign([SEA])
            await read(consumer, 1)
            world.cluster.delete("sea")
            await milliseconds(gone_ms)
            world.cluster.create("sea", [1])
            append(world, b"of the new")
            await milliseconds(back_ms)
            assert "deleted and created again" in (await one_error(consumer)).message
            await consumer.seek(SEA, 0)
            assert await read(consumer, 1) == [b"of the new"]

    scenario()


@pytest.mark.parametrize("back_ms", [0, AGE_MS // 2, 2 * AGE_MS], ids=lambda ms: f"{ms}ms")
def test_after_the_error_of_a_deleted_topic_a_seek_is_enough(back_ms: int) -> None:
    @story
    async def scenario(world: World) -> None:
        for leader in (1, 0, 1, 0):
            world.cluster.elect("sea", 0, leader)
        append(world, b"of the former")
        async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
            consumer.assign([SEA])
            await read(consumer, 1)
            world.cluster.delete("sea")
            for _ in range(3):
                assert isinstance(await one_error(consumer), UnknownTopicError)
            world.cluster.create("sea", [1])
            append(world, b"of the new")
            await milliseconds(back_ms)
            await consumer.seek_to_beginning()
            assert await read(consumer, 1) == [b"of the new"]

    scenario()


async def removed_and_added(world: World, consumer: Consumer, gone_ms: int) -> None:
    """Partition 1, of which one record was read, is removed and added again."""
    world.cluster.resize("sea", [0, 0])
    append(world, b"former", partition=1)
    consumer.assign([("sea", 1)])
    await read(consumer, 1)
    world.cluster.resize("sea", [0])
    await milliseconds(gone_ms)
    world.cluster.resize("sea", [0, 1])
    world.cluster.elect("sea", 1, 0)  # its leader epochs continue
    append(world, b"new", partition=1)


@pytest.mark.parametrize("gone_ms", [0, 2 * AGE_MS], ids=["unnoticed", "noticed"])
def test_a_partition_removed_and_added_again_is_a_truncated_log(gone_ms: int) -> None:
    @story
    async def scenario(world: World) -> None:
        async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
            await removed_and_added(world, consumer, gone_ms)
            assert isinstance(await one_error(consumer), LogTruncatedError)

    scenario()


@pytest.mark.parametrize("gone_ms", [0, 2 * AGE_MS], ids=["unnoticed", "noticed"])
def test_a_reader_that_resets_to_the_earliest_offset_continues_in_a_readded_partition(
    gone_ms: int,
) -> None:
    @story
    async def scenario(world: World) -> None:
        async with world.consumer(
            metadata_max_age_ms=AGE_MS, on_out_of_range="earliest"
        ) as consumer:
            await removed_and_added(world, consumer, gone_ms)
            assert await read(consumer, 1) == [b"new"]

    scenario()


@story
async def test_a_deleted_topic_is_reported_only_after_another_metadata_request(
    world: World,
) -> None:
    append(world, b"read")
    async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
        consumer.assign([SEA])
        await read(consumer, 1)
        world.cluster.delete("sea")
        await milliseconds(2 * AGE_MS)
        asked = sum(len(b.seen["metadata"]) for b in world.cluster.brokers.values())
        assert isinstance(await one_error(consumer), UnknownTopicError)
        after = sum(len(b.seen["metadata"]) for b in world.cluster.brokers.values())
        assert after == asked + 1
        for _ in range(5):
            assert isinstance(await one_error(consumer), UnknownTopicError)
        assert sum(len(b.seen["metadata"]) for b in world.cluster.brokers.values()) == after
