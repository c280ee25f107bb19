"""`assign` and `seek` take effect at once, and a forgotten `await` is not silent."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.client import Consumer, InvalidRequestError, UnknownTopicError
from tidelog.client.unawaited_calls import MAX_KEPT_CALLS
from tidelog.model import TopicPartition
from unit.client.idempotent_world import World, story

SEA = TopicPartition("sea", 0)
TO_AWAIT: dict[str, Callable[[Consumer], Any]] = {
    "assign_topic": lambda consumer: consumer.assign_topic("sea"),
    "resume": lambda consumer: consumer.resume(SEA, 0, topic_id="id-of-sea"),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "seek_to_time": lambda consumer: consumer.seek_to_time(0),
}
POLLS: dict[str, Callable[[Consumer], Any]] = {
    "poll": lambda consumer: consumer.poll(2_000),
    "poll_batches": lambda consumer: consumer.poll_batches(2_000),
    "iteration": lambda consumer: anext(consumer),
}


async def written(world: World, count: int = 3) -> None:
    async with world.producer() as producer:
        await (await producer.send_many("sea", [b"%d" % number for number in range(count)]))


@story
async def test_assign_and_seek_take_effect_without_await(world: World) -> None:
    await written(world)
    async with world.consumer() as consumer:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            consumer.assign([SEA])
            consumer.seek(SEA, 2)
        assert consumer.position(SEA) == 2
        assert [record.offset for record in await consumer.poll(2_000)] == [2]


@story
async def test_both_may_be_awaited_also_repeatedly(world: World) -> None:
    async with world.consumer() as consumer:
        await consumer.assign([SEA])
        sought = consumer.seek(SEA, 2)
        await sought
        await sought
        assert consumer.position(SEA) == 2


@pytest.mark.parametrize(
    "call",
    [lambda consumer: consumer.assign([("sea", 7)]), lambda consumer: consumer.seek(("sea", 7), 0)],
    ids=["assign", "seek"],
)
def test_awaiting_reports_a_partition_that_does_not_exist(call: Callable[[Consumer], Any]) -> None:
    @story
    async def test(world: World) -> None:
        async with world.consumer() as consumer:
            consumer.assign([("sea", 7)])
            with pytest.raises(UnknownTopicError, match="partitions are 0 to 0"):
                await call(consumer)
            with pytest.raises(UnknownTopicError):
                await consumer.poll(2_000)

    test()


@story
async def test_a_partition_that_is_not_assigned_is_reported_at_the_call(world: World) -> None:
    async with world.consumer() as consumer:
        with pytest.raises(InvalidRequestError, match="not assigned"):
            consumer.seek(SEA, 0)


@pytest.mark.parametrize("poll", POLLS)
@pytest.mark.parametrize("forgotten", TO_AWAIT)
def test_a_forgotten_await_is_reported_by_the_next_call_for_records(
    forgotten: str, poll: str
) -> None:
    @story
    async def test(world: World) -> None:
        await written(world)
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            call = TO_AWAIT[forgotten](consumer)
            with pytest.raises(InvalidRequestError, match=f"{forgotten} was called without await"):
                await POLLS[poll](consumer)
            call.close()
            # It is reported once.
            assert await POLLS[poll](consumer)

    test()


@pytest.mark.parametrize("name", TO_AWAIT)
def test_an_awaited_call_is_not_reported(name: str) -> None:
    @story
    async def test(world: World) -> None:
        await written(world)
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            await TO_AWAIT[name](consumer)
            async with asyncio.timeout(1):
                task = asyncio.create_task(TO_AWAIT[name](consumer))
                await asyncio.sleep(0)
                await consumer.poll(0)
                await task
            for _ in range(2 * MAX_KEPT_CALLS):
                await TO_AWAIT[name](consumer)
            assert len(consumer._unawaited.kept) == MAX_KEPT_CALLS
            await consumer.poll(0)
            assert not consumer._unawaited.kept

    test()
