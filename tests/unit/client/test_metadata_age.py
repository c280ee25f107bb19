"""Metadata has an age: running clients notice new and removed partitions and topics."""

import asyncio
import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from tidelog.client import BatchReport, Producer
from tidelog.client.cluster_metadata import (
    DEFAULT_METADATA_MAX_AGE_MS,
    MAX_CHECKED_TOPICS,
    MIN_CHECK_PAUSE_MS,
    MIN_METADATA_MAX_AGE_MS,
    check_pause_ms,
)
from tidelog.client.metadata_cache import MetadataCache
from tidelog.client.partitioner import partition_for_key
from tidelog.client.topic_locks import MAX_IDLE_LOCKS, TopicLocks
from tidelog.errors import ErrorCode, TidelogError, UnknownTopicError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import broker_pb2
from unit.client.fake_broker import Unanswered
from unit.client.idempotent_world import World, milliseconds, story
from unit.client.test_unclean_elections import append
from unit.metadata.virtual_time import virtual_clock

AGE_MS = 1_000
KEYS = [b"key-%d" % number for number in range(24)]


def key_of(partition: int, partitions: int) -> bytes:
    return next(key for key in KEYS if partition_for_key(key, partitions) == partition)


async def value_error(producer: Producer, **where: Any) -> tuple[ErrorCode, bool]:
    with pytest.raises(TidelogError) as caught:
        await (await producer.send("sea", b"x", **where))
    return caught.value.code, caught.value.outcome_unknown


# -- partitions are added --------------------------------------------------------------------


@story
async def test_a_producer_uses_added_partitions_within_the_metadata_age(
    world: World,
) -> None:
    async with world.producer(metadata_max_age_ms=AGE_MS) as producer:
        await (await producer.send("sea", b"x", key=KEYS[0]))
        world.cluster.resize("sea", [0, 1, 0])
        await milliseconds(AGE_MS + 100)
        chosen = [(await (await producer.send("sea", b"x", key=key))).partition for key in KEYS]
        assert chosen == [partition_for_key(key, 3) for key in KEYS]
        free = {(await (await producer.send("sea", b"x"))).partition for _ in range(6)}
        assert free == {0, 1, 2}


@story
async def test_one_producer_changes_once_from_one_mapping_to_the_next(world: World) -> None:
    key = key_of(1, 2)
    async with world.producer(metadata_max_age_ms=AGE_MS) as producer:
        await (await producer.send("sea", b"x", key=key))
        world.cluster.resize("sea", [0, 0])
        partitions = []
        for _ in range(30):
            partitions.append((await (await producer.send("sea", b"x", key=key))).partition)
            await milliseconds(AGE_MS // 10)
    changes = [a != b for a, b in pairwise(partitions)]
    assert sum(changes) == 1
    assert (partitions[0], partitions[-1]) == (0, 1)


@story
async def test_a_consumer_of_a_topic_reads_added_partitions_from_their_beginning(
    world: World,
) -> None:
    async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
        await consumer.assign_topic("sea", start=OffsetPosition.LATEST)
        assert not await consumer.poll(100)
        world.cluster.resize("sea", [0, 1])
        append(world, b"early", partition=1)
        [record] = await consumer.poll(2 * AGE_MS)
        assert (record.partition, record.value) == (1, b"early")
        assert len(await consumer.partitions_of("sea")) == 2


@story
async def test_a_consumer_of_chosen_partitions_reads_no_others(world: World) -> None:
    async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
        await consumer.assign_topic("sea")
        consumer.assign([("sea", 0)])
        world.cluster.resize("sea", [0, 1])
        await milliseconds(3 * AGE_MS)
        assert consumer.assignment == [("sea", 0)]
        assert len(await consumer.partitions_of("sea")) == 2


@story
async def test_a_check_requests_no_partitions_and_an_idle_client_nothing_else(
    world: World,
) -> None:
    async with world.producer(metadata_max_age_ms=AGE_MS) as producer:
        await producer.partitions_of("sea")
        before = sum(len(b.seen["metadata"]) for b in world.cluster.brokers.values())
        await milliseconds(10 * AGE_MS + 100)
        asked: list[Any] = [r for b in world.cluster.brokers.values() for r in b.seen["metadata"]]
        assert len(asked) - before == 10
        assert sum(request.without_partitions for request in asked) == 10


@pytest.mark.parametrize("max_age_ms", [DEFAULT_METADATA_MAX_AGE_MS, 60_000])
@pytest.mark.parametrize("count", [0, 1, 500, 501, 1_200, 10_000])
def test_a_round_of_checks_of_all_topics_takes_the_metadata_age(
    count: int, max_age_ms: int
) -> None:
    checks = max(math.ceil(count / MAX_CHECKED_TOPICS), 1)
    pause_ms = check_pause_ms(count, max_age_ms)
    assert pause_ms >= MIN_CHECK_PAUSE_MS
    assert max_age_ms - checks < checks * pause_ms <= max_age_ms


def test_the_pause_between_checks_has_a_minimum() -> None:
    assert check_pause_ms(100_000, DEFAULT_METADATA_MAX_AGE_MS) == MIN_CHECK_PAUSE_MS
    assert check_pause_ms(1, MIN_METADATA_MAX_AGE_MS) == MIN_METADATA_MAX_AGE_MS


@story
async def test_a_client_of_many_topics_checks_each_once_per_metadata_age(world: World) -> None:
    checks = 3
    names = [f"topic-{number}" for number in range(checks * MAX_CHECKED_TOPICS)]
    for name in names:
        world.cluster.create(name, [0])
    async with world.producer(metadata_max_age_ms=AGE_MS) as producer:
        producer._metadata.follow(names)
        # From now on the requests are counted between two checks.
        await milliseconds(AGE_MS // checks // 2)
        for _ in range(2):
            checked = Counter[str]()
            for _ in range(checks):
                await milliseconds(AGE_MS // checks)
                requests = taken_requests(world)
                assert [len(request.topics) for request in requests] == [MAX_CHECKED_TOPICS]
                assert requests[0].without_partitions
                checked.update(requests[0].topics)
            assert checked == Counter(names)


@story
async def test_topics_that_follow_later_are_checked_within_the_metadata_age(world: World) -> None:
    names = [f"topic-{number}" for number in range(3 * MAX_CHECKED_TOPICS)]
    for name in names:
        world.cluster.create(name, [0])
    async with world.producer(metadata_max_age_ms=AGE_MS) as producer:
        producer._metadata.follow(names[:1])
        await milliseconds(AGE_MS // 10)
        producer._metadata.follow(names)
        taken_requests(world)

        await milliseconds(AGE_MS)

        assert {topic for request in taken_requests(world) for topic in request.topics} == {*names}


def taken_requests(world: World) -> list[broker_pb2.MetadataRequest]:
    """The requests for metadata since the last call."""
    found: list[Any] = []
    for broker in world.cluster.brokers.values():
        found += broker.seen["metadata"]
        broker.seen["metadata"].clear()
    return found


# -- deleted partitions and topics -----------------------------------------------------------


@story
async def test_records_for_a_removed_partition_fail_soon_and_for_certain(world: World) -> None:
    world.cluster.resize("sea", [0, 0, 0])
    async with world.producer() as producer:
        await (await producer.send("sea", b"x", partition=2))
        world.cluster.resize("sea", [0])
        begun = virtual_clock().monotonic_ms()
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False
        assert await value_error(producer, key=key_of(2, 3)) == code
        assert await value_error(producer, partition=1) == code
        assert virtual_clock().monotonic_ms() - begun < 1_000
        assert (await (await producer.send("sea", b"x", key=KEYS[0]))).partition == 0


@story
async def test_records_without_a_key_go_to_the_remaining_partitions(world: World) -> None:
    world.cluster.resize("sea", [0, 0, 0])
    reports: list[BatchReport] = []
    async with world.producer(batch_bytes=1 << 16, on_delivery=reports.append) as producer:
        await (await producer.send("sea", b"x", partition=0))
        world.cluster.resize("sea", [0])
        sent = [await producer.send("sea", b"%d" % n) for n in range(4)]
        # The second record shares a batch with others, whichever partition that is for.
        fixed = [await producer.send("sea", b"fixed", key=key) for key in KEYS]
        await producer.flush()
        assert [(await one).partition for one in sent] == [0] * 4
        errors = [one.exception() for one in fixed]
        gone = [partition_for_key(key, 3) != 0 for key in KEYS]
        assert [isinstance(error, UnknownTopicError) for error in errors] == gone
        await milliseconds(1)
    assert sum(r.record_count for r in reports if r.error is None) == 1 + 4 + gone.count(False)
    assert world.sea.values().count(b"fixed") == gone.count(False)
    assert [v for v in world.sea.values() if v and v.isdigit()] == [b"0", b"1", b"2", b"3"]


@story
async def test_a_record_that_may_be_in_a_removed_partition_is_not_sent_to_another(
    world: World,
) -> None:
    world.cluster.resize("sea", [0] * 9)
    async with world.producer(idempotent=False, request_timeout_ms=500) as producer:
        await producer.partitions_of("sea")
        world.script(Unanswered(100))
        sent = await producer.send("sea", b"in doubt")
        await milliseconds(50)
        world.cluster.resize("sea", [0])
        with pytest.raises(UnknownTopicError) as caught:
            await sent
        assert caught.value.outcome_unknown
        await milliseconds(1_000)
    assert world.sea.values() == []


@story
async def test_send_many_without_keys_skips_removed_partitions(world: World) -> None:
    world.cluster.resize("sea", [0, 0, 0])
    async with world.producer() as producer:
        await producer.partitions_of("sea")
        world.cluster.resize("sea", [0])
        reports = await (await producer.send_many("sea", [b"%d" % n for n in range(9)]))
    assert {report.partition for report in reports} == {0}
    assert sorted(value or b"" for value in world.sea.values()) == [b"%d" % n for n in range(9)]


@story
async def test_records_for_a_deleted_topic_fail_soon_and_for_certain(world: World) -> None:
    async with world.producer() as producer:
        await (await producer.send("sea", b"x"))
        world.cluster.delete("sea")
        begun = virtual_clock().monotonic_ms()
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False
        for where in ({}, {"key": b"k"}, {"partition": 0}):
            assert await value_error(producer, **where) == code
        assert virtual_clock().monotonic_ms() - begun < 2_000
        await (await producer.send("bay", b"x"))


@story
async def test_a_record_that_may_be_in_a_deleted_topic_is_in_doubt(world: World) -> None:
    async with world.producer(idempotent=False, request_timeout_ms=500) as producer:
        await (await producer.send("sea", b"x"))
        world.script(Unanswered(100))
        sent = await producer.send("sea", b"y")
        await milliseconds(50)
        world.cluster.delete("sea")
        with pytest.raises(
            UnknownTopicError, match=r"any more: it was deleted.*not known"
        ) as caught:
            await sent
        assert caught.value.outcome_unknown


@story
async def test_a_later_topic_of_the_name_is_written_by_the_same_producer(world: World) -> None:
    async with world.producer() as producer:
        await (await producer.send("sea", b"x"))
        world.cluster.delete("sea")
        await value_error(producer)
        world.cluster.create("sea", [0, 0])
        assert (await (await producer.send("sea", b"x", partition=1))).offset == 0
        assert (await (await producer.send("sea", b"x", partition=0))).offset == 0


@story
async def test_a_named_producer_survives_a_deleted_topic(world: World) -> None:
    async with world.producer(producer_name="pilot") as producer:
        await (await producer.send("sea", b"x"))
        world.cluster.delete("sea")
        await value_error(producer)
        await (await producer.send("bay", b"x"))


@story
async def test_stale_metadata_deletes_no_topic(world: World) -> None:
    behind = world.cluster.brokers[1]
    async with world.producer(metadata_max_age_ms=AGE_MS) as producer:
        await (await producer.send("sea", b"x"))
        world.cluster.elect("sea", 0, 0)
        unknown = error_to_wire(TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"))
        behind.metadata_of = lambda: broker_pb2.MetadataResponse(
            cluster_id="fake",
            revision=world.cluster.topics["sea"].revision - 1,
            topics=[broker_pb2.TopicMetadata(name="sea", error=unknown)],
        )
        for _ in range(8):
            await milliseconds(AGE_MS)
            await (await producer.send("sea", b"x"))


@story
async def test_a_consumer_of_a_deleted_topic_ends_with_an_error(world: World) -> None:
    append(world, b"read")
    async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
        await consumer.assign_topic("sea")
        assert len(await consumer.poll(500)) == 1
        world.cluster.delete("sea")
        with pytest.raises(UnknownTopicError):
            await consumer.poll(2 * AGE_MS)
        with pytest.raises(UnknownTopicError):
            await consumer.end_offsets([("sea", 0)])


@story
async def test_a_consumer_reads_remaining_records_before_it_reports_a_removed_partition(
    world: World,
) -> None:
    world.cluster.resize("sea", [0, 0])
    async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
        await consumer.assign_topic("sea")
        await consumer.poll(100)
        world.cluster.resize("sea", [0])
        append(world, b"left")
        assert [r.value for r in await consumer.poll(100)] == [b"left"]
        with pytest.raises(UnknownTopicError, match="partition 1 of topic 'sea' does not exist"):
            await consumer.poll(2 * AGE_MS)
        consumer.assign([("sea", 0)])
        append(world, b"more")
        assert [r.value for r in await consumer.poll(500)] == [b"more"]


# -- unknown names ---------------------------------------------------------------------------


@story
async def test_no_state_is_kept_about_unknown_names(world: World) -> None:
    async def send(number: int) -> None:
        with pytest.raises(UnknownTopicError):
            await producer.send(f"none-{number}", b"x")

    async with world.producer(metadata_max_age_ms=AGE_MS) as producer:
        await (await producer.send("sea", b"x"))
        for first in range(0, 900, 300):
            await asyncio.gather(*map(send, range(first, first + 300)))
        await milliseconds(2 * AGE_MS)
        metadata = producer._metadata
        assert list(metadata._interest) == ["sea"]
        assert not metadata._cache._errors
        assert not metadata._cache._denied
        assert len(producer._admission.locks) <= MAX_IDLE_LOCKS + 1


@story
async def test_deleted_topics_are_forgotten(world: World) -> None:
    async with world.producer(metadata_max_age_ms=AGE_MS) as producer:
        for number in range(20):
            world.cluster.create(f"brief-{number}", [0])
            await (await producer.send(f"brief-{number}", b"x"))
            world.cluster.delete(f"brief-{number}")
        await milliseconds(2 * AGE_MS)
        assert not producer._metadata._interest
        assert not producer._metadata._cache._topics
        assert not producer._accumulator._queues
        assert not producer._sender._elections._reached
        assert not producer._outgoing._sticky._current


@story
async def test_calls_get_their_turns_in_order(world: World) -> None:  # noqa: ARG001
    locks, order = TopicLocks(), []

    async def take(number: int) -> None:
        async with locks.of("sea"):
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*map(take, range(5)))
    assert order == [0, 1, 2, 3, 4]


# -- the cache -------------------------------------------------------------------------------


def test_partitions_without_replicas_leave_the_others_in_place() -> None:
    cache = MetadataCache()
    cache.apply(
        broker_pb2.MetadataResponse(
            brokers=[broker_pb2.BrokerEndpoint(broker_id=1, address="one:1", broker_epoch=1)],
            topics=[
                broker_pb2.TopicMetadata(
                    name="sea",
                    topic_id="id",
                    partition_count=3,
                    partitions=[broker_pb2.PartitionMetadata(partition=2, leader=1)],
                )
            ],
        )
    )
    assert [cache.leader(TopicPartition("sea", n)) is not None for n in range(3)] == [
        False,
        False,
        True,
    ]
