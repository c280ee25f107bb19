"""A topic is deleted, created again or shrunk while clients use it: the same change has the same
error in each call, and an assigned topic is read completely after one seek."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client import Consumer, Producer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from unit.client.idempotent_world import World, milliseconds, story
from unit.client.test_unclean_elections import append, read

AGE_MS = 1_000
SEA = TopicPartition("sea", 1)

DELETED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'sea' does not exist")
REMOVED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "partition 1 of topic 'sea' does not exist; its partitions are 0 to 0",
)
ANOTHER = (ErrorCode.UNKNOWN_TOPIC_ID, "topic 'sea' was deleted and created again")
NONE = None


def deleted(world: World) -> None:
    world.cluster.delete("sea")


def created(count: int) -> Callable[[World], None]:
    def create(world: World) -> None:
        world.cluster.create("sea", [0] * count)

    return create


def shrunk(world: World) -> None:
    world.cluster.resize("sea", [0])


Steps = tuple[Callable[[World], None], ...]

# The steps of each change, and the error of `poll` and of the other calls that name partition 1.
CHANGES: dict[str, tuple[Steps, Any, Any]] = {
    "deleted": ((deleted,), DELETED, DELETED),
    "created again with fewer partitions": ((created(1),), REMOVED, REMOVED),
    "created again with as many partitions": ((created(2),), ANOTHER, NONE),
    "created again with more partitions": ((created(3),), ANOTHER, NONE),
    "shrunk": ((shrunk,), REMOVED, REMOVED),
    # The clients notice each step before the next one.
    "deleted, then created with fewer partitions": ((deleted, created(1)), REMOVED, REMOVED),
    "deleted, then created with as many partitions": ((deleted, created(2)), ANOTHER, NONE),
    "deleted, then created with more partitions": ((deleted, created(3)), ANOTHER, NONE),
    "shrunk, then deleted": ((shrunk, deleted), DELETED, DELETED),
}


async def outcome(call: Awaitable[Any]) -> tuple[ErrorCode, str] | None:
    try:
        await call
    except TidelogError as error:
        found = error
    else:
        return None
    assert not found.outcome_unknown
    return found.code, str(found)


def matches(found: tuple[ErrorCode, str] | None, expected: tuple[ErrorCode, str] | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return found[0] is expected[0] and found[1].startswith(expected[1])


async def send(producer: Producer) -> None:
    await (await producer.send("sea", b"x", partition=1))


CALLS: dict[str, Callable[[Consumer], Awaitable[Any]]] = {
    "seek": lambda consumer: consumer.seek(SEA, 0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning([SEA]),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([SEA]),
    "end_offsets": lambda consumer: consumer.end_offsets([SEA]),
    "offsets_at_time": lambda consumer: consumer.offsets_at_time(0, [SEA]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_has_the_same_error_in_each_call(change: str) -> None:
    steps, of_poll, of_calls = CHANGES[change]

    async def scenario(world: World) -> None:
        world.cluster.create("sea", [0, 0])
        append(world, b"read", partition=1)
        async with (
            world.producer(metadata_max_age_ms=AGE_MS) as producer,
            world.consumer(metadata_max_age_ms=AGE_MS) as consumer,
        ):
            consumer.assign([SEA])
            await read(consumer, 1)
            await send(producer)
            await read(consumer, 1)
            for step in steps:
                step(world)
                await milliseconds(3 * AGE_MS)
                polled = await outcome(consumer.poll(100))
            # The error stays the same while nothing is sought.
            for _ in range(3):
                assert matches(polled, of_poll), polled
                polled = await outcome(consumer.poll(100))
            assert consumer.position(SEA) == 2
            sent = await outcome(send(producer))
            assert matches(sent, of_calls), sent
            for name, call in reversed(CALLS.items()):
                found = await outcome(call(consumer))
                assert matches(found, of_calls), (name, found)

    story(scenario)()


@pytest.mark.parametrize("is_deletion_noticed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_seek_is_enough_to_read_a_topic_that_was_created_again_completely(
    count: int, is_deletion_noticed: bool
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.create("sea", [0, 0])
        append(world, b"former", partition=1)
        async with world.consumer(metadata_max_age_ms=AGE_MS) as consumer:
            await consumer.assign_topic("sea")
            await read(consumer, 1)
            if is_deletion_noticed:
                world.cluster.delete("sea")
                assert matches(await outcome(consumer.poll(3 * AGE_MS)), DELETED)
            world.cluster.create("sea", [0] * count)
            for partition in range(count):
                append(world, b"new", partition=partition)
            await milliseconds(3 * AGE_MS)
            assert len(consumer.assignment) == 2, "nothing of the new topic before a seek"
            await outcome(consumer.poll(100))
            await consumer.seek_to_beginning([("sea", p) for p in range(min(count, 2))])
            assert await read(consumer, count) == [b"new"] * count
            world.cluster.resize("sea", [0] * 5)
            append(world, b"added", partition=4)
            await milliseconds(2 * AGE_MS)
            assert await read(consumer, 1) == [b"added"]
            assert len(consumer.assignment) == 5

    story(scenario)()
