"""A producer whose identity and sequences others have found: what is written once rests on each
record having the sequence that it would have again."""

import asyncio

import pytest

from tidelog.client import Identity, Producer
from tidelog.errors import ErrorCode, TidelogError
from unit.client.fake_broker import Unanswered
from unit.client.fake_producer_state import FIRST_NAMED_ID
from unit.client.idempotent_world import World, milliseconds, story
from unit.client.test_idempotent_producer import LATE, outcome, send, send_slowly

NAMED = FIRST_NAMED_ID


def given(world: World, **settings: int) -> Producer:
    producer = world.producer(identity=Identity(NAMED, 7), **settings)
    producer.begin_at("sea", 0, 0)
    return producer


@pytest.mark.rule("repeated-micro-batch-written-once")
@story
async def test_behind_a_batch_that_is_refused_nothing_takes_its_sequence(world: World) -> None:
    async with given(world) as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(TidelogError(ErrorCode.INVALID_BATCH, "no batch"))
        refused, *others = await send(producer, 4, first=1)
        told = await outcome(refused)
        assert isinstance(told, TidelogError)
        assert told.message == "no batch"
        for other in others:
            told = await outcome(other)
            assert isinstance(told, TidelogError)
            assert "a batch for sea/0 was not written (no batch)" in told.message
        with pytest.raises(TidelogError, match="was not written"):
            await producer.send("sea", b"more")
    assert world.sequences() == [(NAMED, 0)]


@story
async def test_behind_a_batch_that_was_too_late_nothing_takes_its_sequence(world: World) -> None:
    async with given(world, delivery_timeout_ms=500) as producer:
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
async def test_a_deleted_topic_ends_it_for_records_of_other_topics_too(world: World) -> None:
    async with given(world) as producer:
        producer.begin_at("bay", 0, 0)
        for topic in ("sea", "bay"):
            await producer.partitions_of(topic)
            world.cluster.partition(topic).leader = -1
        deliveries = [await producer.send(topic, b"a") for topic in ("bay", "sea")]
        await milliseconds(50)
        world.cluster.delete("sea")
        for delivery in deliveries:
            told = await outcome(delivery)
            assert isinstance(told, TidelogError)
            assert not told.outcome_unknown


@story
async def test_one_in_doubt_ends_it_too(world: World) -> None:
    async with given(world, delivery_timeout_ms=500) as producer:
        world.script(*[LATE] * 100)
        for delivery in await send(producer, 2):
            assert isinstance(await outcome(delivery), TidelogError)
        with pytest.raises(TidelogError, match="cannot go on"):
            await producer.send("sea", b"more")


@story
async def test_its_own_batch_that_comes_again_behind_many_others_does_not_end_it(
    world: World,
) -> None:
    async with given(world) as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(Unanswered(200))
        deliveries = await send_slowly(producer, 11, first=1)
        assert [await outcome(d) for d in deliveries] == list(range(1, 12))
    assert world.sequences() == [(NAMED, n) for n in range(12)]
