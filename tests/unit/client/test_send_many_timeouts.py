"""`send_many` ends within its delivery timeout, and gets more time only while it makes progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from tidelog.client import column_sender
from tidelog.client.record_columns import split_by_key
from tidelog.errors import RequestTimedOutError, TidelogError
from unit.client.fake_broker import Slow
from unit.client.idempotent_world import World, milliseconds, story, warm
from unit.metadata.virtual_time import virtual_clock


async def end_of_ms(sending: Awaitable[Any]) -> tuple[int, str]:
    """How long a `send_many` and its delivery take together, and how they end."""
    begun_ms = virtual_clock().monotonic_ms()
    found = "delivered"
    try:
        await (await sending)
    except TidelogError as error:
        found = error.code.name
    return virtual_clock().monotonic_ms() - begun_ms, found


@pytest.mark.parametrize("missing", ["leader", "metadata"])
def test_concurrent_send_many_calls_of_a_topic_end_within_one_delivery_timeout(
    missing: str,
) -> None:
    @story
    async def test(world: World) -> None:
        async with world.producer(buffer_bytes=10, delivery_timeout_ms=3_000) as producer:
            if missing == "leader":
                await warm(producer)
                world.sea.leader = -1
                # It fills the buffer until its own timeout.
                filling = await producer.send("sea", bytes(9))
            else:
                for broker in world.cluster.brokers.values():
                    broker.alive = False
            await milliseconds(100)
            ends = await asyncio.gather(
                *(end_of_ms(producer.send_many("sea", [bytes(9)])) for _ in range(5))
            )
            assert {found for _, found in ends} == {"REQUEST_TIMED_OUT"}
            assert [ms for ms, _ in ends if ms > 3_200] == []
            if missing == "leader":
                with pytest.raises(RequestTimedOutError):
                    await filling

    test()


@story
async def test_a_send_many_that_makes_progress_gets_the_full_time_for_each_batch(
    world: World,
) -> None:
    async with world.producer(buffer_bytes=10, delivery_timeout_ms=3_000) as producer:
        await warm(producer)
        world.script(*[Slow(1_400)] * 6)
        took_ms, found = await end_of_ms(producer.send_many("sea", [bytes(9)] * 6))
        assert (found, took_ms > 2 * 3_000) == ("delivered", True)


@story
async def test_a_send_many_larger_than_the_buffer_ends_when_its_first_batch_times_out(
    world: World,
) -> None:
    async with world.producer(buffer_bytes=20, delivery_timeout_ms=3_000) as producer:
        await warm(producer)
        world.sea.leader = -1
        # The first batch waits a moment for room, so the second one's time ends after the first's.
        world.script(Slow(100))
        filling = await producer.send("bay", bytes(19))
        sending = asyncio.create_task(end_of_ms(producer.send_many("sea", [bytes(19)] * 5)))
        await filling
        took_ms, found = await sending
        assert (found, took_ms <= 3_200) == ("REQUEST_TIMED_OUT", True)
        assert producer.free_bytes == 20


@story
async def test_the_error_of_a_send_many_says_that_a_part_was_sent(world: World) -> None:
    async with world.producer(buffer_bytes=10, delivery_timeout_ms=3_000) as producer:
        await warm(producer)
        world.broker.gate.clear()
        with pytest.raises(RequestTimedOutError, match=r"may be written \(batches: 1\)") as late:
            await producer.send_many("sea", [bytes(9)] * 2)
        assert late.value.outcome_unknown
        world.broker.gate.set()


@story
async def test_a_call_whose_records_take_too_long_to_prepare_sends_none_of_them(
    world: World,
) -> None:
    """Without its first batch the others would be sent."""

    class Slowly:
        is_slow = False

        @staticmethod
        async def sleep(_: float) -> None:
            await milliseconds(3_001 if Slowly.is_slow else 0)

    def split(columns: Any, _: object) -> Any:
        Slowly.is_slow = True
        yield None
        yield from split_by_key(columns, lambda _: 0)

    async with world.producer(buffer_bytes=100, delivery_timeout_ms=3_000) as producer:
        await warm(producer)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(column_sender, "asyncio", Slowly)
            patch.setattr(column_sender, "split_by_key", split)
            with pytest.raises(RequestTimedOutError, match="took longer") as failed:
                await producer.send_many("sea", [b"ebb", b"flow"])
        assert not failed.value.outcome_unknown
        await producer.flush()
        assert not {b"ebb", b"flow"} & set(world.sea.values())
