"""A caller that stops waiting does not affect delivery. Every record is delivered or reported
within its delivery timeout, which begins with `send`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from tidelog.client import BatchReport, Producer
from tidelog.errors import ClientClosedError, RequestTimedOutError, TidelogError
from unit.client.fake_broker import Slow
from unit.client.idempotent_world import World, milliseconds, story, warm
from unit.metadata.virtual_time import run, virtual_clock


async def give_up(wait: Any, ms: int = 0) -> None:
    """Waits for this time, and then cancels the wait."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(ms / 1000):
            await wait


async def delivery_of(producer: Producer, method: str) -> Any:
    """The result that the user gets for one record."""
    if method == "send":
        return await producer.send("sea", b"a")
    found = await producer.send_many("sea", [b"a"])
    return found if method == "send_many" else found.batches[0]


async def cancel_await(delivery: Any) -> None:
    async def wait() -> None:
        await delivery

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def cancel_gather(delivery: Any) -> None:
    gathered = asyncio.gather(delivery, delivery)
    await asyncio.sleep(0)
    gathered.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathered


async def time_out_wait_for(delivery: Any) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 0.0001)


async def time_out_as_completed(delivery: Any) -> None:
    with pytest.raises(TimeoutError):
        await next(iter(asyncio.as_completed([delivery], timeout=0.0001)))


async def cancel_it(delivery: Any) -> None:
    if isinstance(delivery, asyncio.Future):
        assert not delivery.cancel()
        assert not delivery.cancelled()


WAYS_TO_GIVE_UP: list[Callable[[Any], Awaitable[None]]] = [
    cancel_await,
    cancel_gather,
    cancel_it,
    give_up,
    time_out_as_completed,
    time_out_wait_for,
]


@pytest.mark.parametrize("method", ["send", "send_many", "batches"])
@pytest.mark.parametrize("way", WAYS_TO_GIVE_UP, ids=lambda way: way.__name__)
@pytest.mark.parametrize("fails", [False, True], ids=["delivered", "failed"])
def test_an_abandoned_wait_changes_nothing_for_others(
    method: str, way: Callable[[Any], Awaitable[None]], fails: bool
) -> None:
    @story
    async def test(world: World) -> None:
        producer = world.producer(delivery_timeout_ms=3_000)
        await warm(producer)
        world.sea.leader = -1 if fails else 0
        delivery = await delivery_of(producer, method)

        async def wait() -> Any:
            return await delivery

        other = asyncio.create_task(wait())
        await way(delivery)
        assert not other.done()
        ends = [*await asyncio.gather(other, delivery, wait(), return_exceptions=True)]
        ends += await asyncio.gather(wait(), delivery, return_exceptions=True)
        assert ends == [ends[0]] * 5
        assert isinstance(ends[0], RequestTimedOutError) == fails
        assert world.sea.values() == ([] if fails else [b"a"])
        await producer.close()

    test()


SPAN: ContextVar[str] = ContextVar("span", default="none")


@story
async def test_a_callback_runs_in_the_context_of_its_caller(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        seen: list[str] = []
        delivery = await producer.send("sea", b"a")
        SPAN.set("of the caller")
        delivery.add_done_callback(lambda _: seen.append(SPAN.get()))
        await delivery
        await asyncio.sleep(0)
        assert seen == ["of the caller"]


@story
async def test_the_result_of_send_works_as_a_future(world: World) -> None:
    producer = world.producer()
    await warm(producer)
    first, second = [await producer.send("sea", value) for value in (b"a", b"b")]
    called: list[Any] = []
    first.add_done_callback(called.append)
    assert isinstance(first, asyncio.Future)
    assert not first.done()
    with pytest.raises(asyncio.InvalidStateError):
        first.result()
    done, pending = await asyncio.wait([first, second])
    assert done == {first, second}
    assert not pending
    assert called == [first]
    offsets = [first.result().offset, (await second).offset]
    offsets += [found.offset for found in await asyncio.gather(first, second)]
    offsets += [(await asyncio.shield(first)).offset, (await asyncio.wait_for(second, 1)).offset]
    assert offsets == [0, 1] * 3
    assert first.exception() is None
    await producer.close()


@story
async def test_abandoned_waits_leave_nothing_behind(world: World) -> None:
    producer = world.producer()
    await warm(producer)
    world.broker.gate.clear()
    delivery = await producer.send("sea", b"a")
    for _ in range(10):
        await give_up(delivery)
    assert not delivery._callbacks
    world.broker.gate.set()
    await producer.close()


@story
async def test_flush_delivers_records_of_abandoned_send_many_calls(world: World) -> None:
    producer = world.producer()
    await warm(producer)
    delivery = await producer.send_many("sea", [b"a", b"b"])
    await give_up(delivery)
    await producer.flush()
    assert world.sea.values() == [b"a", b"b"]
    assert [report.record_count for report in await delivery] == [1, 1]
    await producer.close()


@story
async def test_close_delivers_records_of_abandoned_send_calls(world: World) -> None:
    async with world.producer(batch_bytes=1000, linger_ms=50) as producer:
        deliveries = [await producer.send("sea", b"%d" % n) for n in range(4)]
        for delivery in deliveries[:2]:
            delivery.cancel()
        for delivery in deliveries[2:]:
            await give_up(delivery)
    assert world.sea.values() == [b"0", b"1", b"2", b"3"]


@story
async def test_cancelled_futures_of_a_delivery_do_not_affect_flush(
    world: World,
) -> None:
    producer = world.producer()
    delivery = await producer.send_many("sea", [b"a", b"b"])
    for batch in delivery.batches:
        assert isinstance(batch, asyncio.Future)
        batch.cancel()
    await producer.flush()
    assert world.sea.values() == [b"a", b"b"]
    assert producer.free_bytes == 32 << 20
    await producer.close()


@story
async def test_a_cancelled_flush_changes_nothing(world: World) -> None:
    producer = world.producer(batch_bytes=1000, linger_ms=1000)
    await producer.send("sea", b"a")
    await give_up(producer.flush())
    await producer.flush()
    assert world.sea.values() == [b"a"]
    await producer.close()


@story
async def test_a_send_cancelled_under_back_pressure_has_sent_nothing(world: World) -> None:
    producer = world.producer(buffer_bytes=100)
    await warm(producer)
    sends = [asyncio.create_task(producer.send("sea", bytes([n]) * 90)) for n in range(20)]
    await milliseconds(2)
    for send in sends[::2]:
        send.cancel()
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    await producer.flush()
    sent = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, asyncio.Future)]
    assert len(sent) >= 10
    assert world.sea.values() == [bytes([n]) * 90 for n in sent]
    assert producer.free_bytes == 100
    await producer.close()


@story
async def test_a_send_cancelled_under_back_pressure_does_not_block_a_smaller_one(
    world: World,
) -> None:
    producer = world.producer(buffer_bytes=100)
    await warm(producer)
    world.broker.gate.clear()
    await producer.send("sea", b"x" * 60)
    large = asyncio.create_task(producer.send("sea", b"x" * 90))
    await milliseconds(1)
    small = asyncio.create_task(producer.send("bay", b"x" * 10))
    await milliseconds(1)
    assert not small.done()
    large.cancel()
    await milliseconds(1)
    assert small.done()
    assert producer.free_bytes == 30
    world.broker.gate.set()
    await producer.close()


@story
async def test_a_send_cancelled_while_it_fills_a_batch_has_sent_nothing(
    world: World,
) -> None:
    producer = world.producer()
    await warm(producer)
    # It fills a batch, so that the next call lets others run first.
    await producer.send("sea", b"a")
    await give_up(producer.send("sea", b"b"))
    await producer.flush()
    assert world.sea.values() == [b"a"]
    await producer.close()


@story
async def test_a_cancelled_close_continues_and_a_later_one_waits_for_its_end(
    world: World,
) -> None:
    producer = world.producer()
    await warm(producer)
    delivery = await producer.send("sea", b"a")
    await give_up(producer.close())
    await producer.close()
    assert (await delivery).offset == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@story
async def test_a_close_without_flush_ends_one_that_flushes(world: World) -> None:
    reports: list[BatchReport] = []
    producer = world.producer(on_delivery=reports.append)
    await warm(producer)
    world.broker.gate.clear()
    delivery = await producer.send("sea", b"a")
    closing = asyncio.create_task(producer.close())
    await milliseconds(500)
    assert not closing.done()
    begun_ms = virtual_clock().monotonic_ms()
    await producer.close(flush=False)
    await closing
    assert virtual_clock().monotonic_ms() - begun_ms < 1000
    with pytest.raises(ClientClosedError, match="not known") as closed:
        await delivery
    # The record was in flight.
    assert closed.value.outcome_unknown
    await asyncio.sleep(0)
    assert [report.error for report in reports] == [None, closed.value]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@story
async def test_close_reports_records_that_were_never_sent_as_such(world: World) -> None:
    producer = world.producer(batch_bytes=1000, linger_ms=10_000)
    await warm(producer)
    delivery = await producer.send("sea", b"a")
    await producer.close(flush=False)
    with pytest.raises(ClientClosedError) as closed:
        await delivery
    assert not closed.value.outcome_unknown
    assert producer.free_bytes == 32 << 20


async def reported_after_ms(producer: Producer) -> int:
    """The time after `send` at which its error comes, which has to state that nothing was
    written.
    """
    begun_ms = virtual_clock().monotonic_ms()
    with pytest.raises(RequestTimedOutError, match="delivery_timeout_ms"):
        await (await producer.send("sea", b"a"))
    return virtual_clock().monotonic_ms() - begun_ms


@story
async def test_the_delivery_timeout_counts_the_time_in_an_open_batch(world: World) -> None:
    world.sea.leader = -1
    async with world.producer(
        batch_bytes=1000, linger_ms=2_000, delivery_timeout_ms=3_000
    ) as producer:
        assert 3_000 <= await reported_after_ms(producer) <= 3_200


@story
async def test_the_delivery_timeout_counts_the_wait_for_metadata(world: World) -> None:
    for broker in world.cluster.brokers.values():
        broker.alive = False
    async with world.producer(delivery_timeout_ms=3_000) as producer:
        assert 3_000 <= await reported_after_ms(producer) <= 3_200


@story
async def test_the_delivery_timeout_counts_the_wait_for_buffer_room(world: World) -> None:
    world.broker.gate.clear()
    async with world.producer(buffer_bytes=10, delivery_timeout_ms=3_000) as producer:
        first = await producer.send("sea", b"123456789")
        # Only the end of the first record makes room, at nearly the same time.
        await milliseconds(100)
        begun_ms = virtual_clock().monotonic_ms()
        with pytest.raises(RequestTimedOutError):
            await (await producer.send("sea", b"987654321"))
        assert virtual_clock().monotonic_ms() - begun_ms <= 3_200
        with pytest.raises(RequestTimedOutError):
            await first
        world.broker.gate.set()


@story
async def test_the_delivery_timeout_ends_a_request_without_an_answer(world: World) -> None:
    async with world.producer(delivery_timeout_ms=3_000) as producer:
        await warm(producer)
        world.broker.gate.clear()
        begun_ms = virtual_clock().monotonic_ms()
        with pytest.raises(RequestTimedOutError) as late:
            await (await producer.send("sea", b"a"))
        assert 3_000 <= virtual_clock().monotonic_ms() - begun_ms <= 3_200
        assert late.value.outcome_unknown
        world.broker.gate.set()


@story
async def test_the_delivery_timeout_counts_the_wait_for_a_turn(world: World) -> None:
    async with world.producer(buffer_bytes=10, delivery_timeout_ms=3_000) as producer:
        await warm(producer)
        # Each of four batches waits for room until the previous one is delivered.
        world.script(*[Slow(1_400)] * 4)
        many = asyncio.create_task(producer.send_many("sea", [bytes(9)] * 4))
        await milliseconds(100)
        assert 3_000 <= await reported_after_ms(producer) <= 3_200
        assert not many.done()
        await (await many)


@story
async def test_a_record_of_a_removed_partition_keeps_its_delivery_timeout(world: World) -> None:
    world.cluster.create("tide", [-1, -1])
    async with world.producer(delivery_timeout_ms=3_000) as producer:
        await warm(producer)
        begun_ms = virtual_clock().monotonic_ms()
        moved = await producer.send("tide", b"moved")
        stays = await producer.send("tide", b"stays")
        await milliseconds(1_000)
        later = [await producer.send("tide", b"later", partition=p) for p in range(2)]
        await milliseconds(500)
        world.cluster.resize("tide", [-1])
        for early in (moved, stays):
            with pytest.raises(RequestTimedOutError, match="tide/0 was not delivered"):
                await early
            assert 3_000 <= virtual_clock().monotonic_ms() - begun_ms <= 3_200
        for delivery in later:
            with pytest.raises(TidelogError):
                await delivery


@pytest.mark.parametrize("other", ["sea", "bay"])
def test_the_delivery_timeout_ends_the_wait_for_a_shared_answer(other: str) -> None:
    async def main() -> None:
        world = World()
        async with world.producer(delivery_timeout_ms=3_000) as producer:
            await warm(producer)
            world.sea.leader = world.cluster.partition("bay").leader = -1
            begun_ms = virtual_clock().monotonic_ms()
            early = await producer.send("sea", b"early")
            await milliseconds(2_000)
            later = await producer.send(other, b"later")
            world.sea.leader = world.cluster.partition("bay").leader = 0
            world.broker.gate.clear()
            with pytest.raises(RequestTimedOutError) as late:
                await early
            assert late.value.outcome_unknown
            assert 3_000 <= virtual_clock().monotonic_ms() - begun_ms <= 3_200
            world.broker.gate.set()
            assert (await later).offset >= 1
            assert virtual_clock().monotonic_ms() - begun_ms <= 3_200
            await (await producer.send("sea", b"next"))

    run(main())


@story
async def test_an_exception_in_on_delivery_stops_nothing(world: World) -> None:
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))

    def fails(report: BatchReport) -> None:
        raise RuntimeError(report.record_count)

    async with world.producer(on_delivery=fails) as producer:
        for n in range(3):
            await (await producer.send("sea", b"%d" % n))
    assert world.sea.values() == [b"0", b"1", b"2"]
    assert len(raised) == 3


def test_a_producer_without_its_event_loop_logs_its_undelivered_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    producers: list[Producer] = []

    async def send() -> None:
        producers.append(World().producer(batch_bytes=1000, linger_ms=10_000))
        await producers[0].send("sea", b"a")

    run(send())
    run(producers[0].close())
    assert "1 batches that are not known to be delivered: its event loop" in caplog.text


def test_an_unclosed_producer_logs_its_undelivered_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def send() -> None:
        await World().producer(batch_bytes=1000, linger_ms=10_000).send("sea", b"a")

    run(send())
    with pytest.warns(ResourceWarning, match="a producer was not closed"):
        gc.collect()
    assert "1 batches that are not known to be delivered: it was not closed" in caplog.text
