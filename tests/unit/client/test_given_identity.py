"""A producer with a given identity and given sequences. Exactly-once writes need each record to get
the same sequence when it is sent again.
"""

import asyncio

import pytest

from tidelog.client import Identity, Producer
from tidelog.errors import ErrorCode, TidelogError
from unit.client.fake_broker import Unanswered
from unit.client.fake_producer_state import FIRST_NAMED_ID
from unit.client.idempotent_world import World, milliseconds, story
from unit.client.test_idempotent_producer import LATE, outcome, send, send_slowly

NAMED = FIRST_NAMED_ID


def given_producer(world: World, **settings: int) -> Producer:
    producer = world.producer(identity=Identity(NAMED, 7), **settings)
    producer.begin_at("sea", 0, 0)
    return producer


@pytest.mark.rule("repeated-micro-batch-written-once")
@story
async def test_after_a_rejected_batch_its_sequence_is_not_used_again(world: World) -> None:
    async with given_producer(world) as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(TidelogError(ErrorCode.INVALID_BATCH, "no batch"))
        rejected, *others = await send(producer, 4, first=1)
        error = await outcome(rejected)
        assert isinstance(error, TidelogError)
        assert error.message == "no batch"
        for other in others:
            error = await outcome(other)
            assert isinstance(error, TidelogError)
            assert "a batch for sea/0 was not written (no batch)" in error.message
        with pytest.raises(TidelogError, match="was not written"):
            await producer.send("sea", b"more")
    assert world.sequences() == [(NAMED, 0)]


@story
async def test_after_an_expired_batch_its_sequence_is_not_used_again(world: World) -> None:
    async with given_producer(world, delivery_timeout_ms=500) as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(*[TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")] * 100)
        [late] = await send(producer, 1, first=1)
        await milliseconds(400)
        [young] = await send(producer, 1, first=2)
        assert isinstance(await outcome(late), TidelogError)
        world.broker.script["produce"].clear()
        assert isinstance(await outcome(young), TidelogError)
    assert world.sequences() == [(NAMED, 0)]


@story
async def test_a_deleted_topic_ends_the_producer_for_other_topics_too(world: World) -> None:
    async with given_producer(world) as producer:
        producer.begin_at("bay", 0, 0)
        for topic in ("sea", "bay"):
            await producer.partitions_of(topic)
            world.cluster.partition(topic).leader = -1
        deliveries = [await producer.send(topic, b"a") for topic in ("bay", "sea")]
        await milliseconds(50)
        world.cluster.delete("sea")
        for delivery in deliveries:
            error = await outcome(delivery)
            assert isinstance(error, TidelogError)
            assert not error.outcome_unknown


@story
async def test_a_batch_in_doubt_ends_the_producer_too(world: World) -> None:
    async with given_producer(world, delivery_timeout_ms=500) as producer:
        world.script(*[LATE] * 100)
        for delivery in await send(producer, 2):
            assert isinstance(await outcome(delivery), TidelogError)
        with pytest.raises(TidelogError, match="cannot continue"):
            await producer.send("sea", b"more")


@story
async def test_a_late_retry_of_its_own_batch_does_not_end_the_producer(
    world: World,
) -> None:
    async with given_producer(world) as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(Unanswered(200))
        deliveries = await send_slowly(producer, 11, first=1)
        assert [await outcome(d) for d in deliveries] == list(range(1, 12))
    assert world.sequences() == [(NAMED, n) for n in range(12)]
