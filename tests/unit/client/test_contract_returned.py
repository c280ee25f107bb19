"""docs/client-guarantees.md for what public calls return: every result that may wait for something
× every event after which it could wait for ever. Threads take real time, some milliseconds a test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tidelog.client import (
    Admin,
    BatchDelivery,
    ClientClosedError,
    ClientForkedError,
    Confirmation,
    Consumer,
    InvalidRequestError,
    Producer,
    SyncConsumer,
    SyncDelivery,
    SyncProducer,
)
from tidelog.client.delivery import DeliveryFuture
from tidelog.rpc import forks
from unit.client.contract_calls import (
    CLIENTS,
    PARTITIONS,
    SYNC_CLIENTS,
    Unresponsive,
    new_client,
    public_calls,
    returned_waits,
)
from unit.client.idempotent_world import World, story, warm
from unit.client.memory_connections import MemoryConnections
from unit.metadata.virtual_time import run

# By type of a producer's results: the call.
DELIVERIES: dict[type, Callable[[Producer], Awaitable[Any]]] = {
    DeliveryFuture: lambda producer: producer.send("sea", b"v"),
    BatchDelivery: lambda producer: producer.send_many("sea", [b"v", b"w"]),
}
HANGS_AFTER_S = 10.0


async def by_await(delivery: Any) -> None:
    await delivery


async def by_gather(delivery: Any) -> None:
    await asyncio.gather(delivery, delivery)


async def by_wait(delivery: Any) -> None:
    await asyncio.wait([delivery] if isinstance(delivery, asyncio.Future) else delivery.batches)


async def by_wait_for(delivery: Any) -> None:
    await asyncio.wait_for(delivery, None)


each_delivery = pytest.mark.parametrize("kind", DELIVERIES, ids=lambda kind: kind.__name__)
each_wait = pytest.mark.parametrize(
    "wait", [by_await, by_gather, by_wait, by_wait_for], ids=lambda wait: wait.__name__
)


def without_row(*clients: type) -> set[type]:
    """Types of results that this file does not test."""
    tested = {*DELIVERIES, Confirmation, Iterator, AbstractContextManager, SyncDelivery}
    # What a `Confirmation` awaits.
    tested.add(Coroutine)
    return returned_waits(*public_calls(*clients)) - tested


def outcome_of(wait: Callable[[], Any]) -> Any:
    """The result or the exception of a call in a thread of its own. Fails if it hangs."""
    ends: list[Any] = []

    def work() -> None:
        try:
            ends.append(wait())
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(HANGS_AFTER_S)
    assert ends, "it hangs"
    return ends[0]


async def undelivered(world: World, kind: type) -> tuple[Producer, Any]:
    producer = world.producer()
    await warm(producer)
    world.broker.gate.clear()
    return producer, await DELIVERIES[kind](producer)


def test_every_result_that_may_wait_is_tested() -> None:
    assert not without_row(*CLIENTS, *SYNC_CLIENTS)


def test_a_new_awaitable_without_a_row_is_found() -> None:
    class Handle:
        async def done(self) -> None: ...

    class Opened(asyncio.Future[int]): ...

    class Planted:
        def handles(self) -> dict[str, Handle]: ...  # type: ignore[empty-body]

        async def opens(self) -> Opened | None: ...

    # Annotations are resolved by the names of the module.
    scope = {"Handle": Handle, "Opened": Opened}
    with pytest.MonkeyPatch.context() as patch:
        for name, each in scope.items():
            patch.setitem(globals(), name, each)
        assert without_row(Planted) == {Handle, Opened}


@each_wait
@each_delivery
def test_a_delivery_is_awaited_in_another_threads_loop(kind: type, wait: Any) -> None:
    @story
    async def test(world: World) -> None:
        producer, delivery = await undelivered(world, kind)
        error = outcome_of(lambda: asyncio.run(wait(delivery)))
        assert isinstance(error, InvalidRequestError)
        assert "event loop" in str(error)
        world.broker.gate.set()
        await delivery
        await producer.close()

    test()


@each_wait
@each_delivery
def test_a_delivery_is_awaited_after_its_loop_ended(kind: type, wait: Any) -> None:
    made: list[Any] = []

    async def send() -> None:
        made.extend(await undelivered(World(), kind))

    run(send())
    producer, delivery = made
    error = outcome_of(lambda: asyncio.run(wait(delivery)))
    assert isinstance(error, InvalidRequestError)
    run(producer.close())


@each_wait
@each_delivery
def test_a_delivery_is_awaited_after_a_fork(kind: type, wait: Any) -> None:
    """In any loop: a child that was forked outside of a coroutine may run the parent's."""

    @story
    async def test(world: World) -> None:
        producer, delivery = await undelivered(world, kind)
        with pytest.MonkeyPatch.context() as patch:
            # The delivery sees this in the child; tests/integration/test_client_forks.py forks.
            patch.setattr(forks, "generation", forks.generation + 1)
            assert isinstance(outcome_of(lambda: asyncio.run(wait(delivery))), ClientForkedError)
            with pytest.raises(ClientForkedError):
                await wait(delivery)
        world.broker.gate.set()
        await delivery
        await producer.close()

    test()


@each_delivery
def test_a_delivery_is_awaited_while_and_after_its_producer_is_closed(kind: type) -> None:
    @story
    async def test(world: World) -> None:
        producer, delivery = await undelivered(world, kind)
        before = asyncio.ensure_future(delivery)
        await asyncio.sleep(0)
        await producer.close(flush=False)
        for wait in (before, delivery):
            with pytest.raises(ClientClosedError):
                await wait
        world.broker.gate.set()

    test()


@each_delivery
def test_a_known_outcome_is_read_anywhere(kind: type) -> None:
    @story
    async def test(world: World) -> None:
        async with world.producer() as producer:
            delivery = await DELIVERIES[kind](producer)
            here = await delivery
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(forks, "generation", forks.generation + 1)
            assert await delivery == here
        assert outcome_of(lambda: asyncio.run(_result_of(delivery))) == here

    test()


async def _result_of(delivery: Any) -> Any:
    return await delivery


def test_a_delivery_of_a_client_without_async_is_not_awaited_elsewhere() -> None:
    """`ask` returns any result of the async client, whose loop is that of another thread."""
    world = World()
    with SyncProducer(
        world.cluster.bootstrap(), connections=MemoryConnections(world.cluster)
    ) as producer:
        producer.send("sea", b"v")
        world.broker.gate.clear()
        delivery = producer.ask(lambda client: client.send("sea", b"v"))
        error = outcome_of(lambda: asyncio.run(by_await(delivery)))
        assert isinstance(error, InvalidRequestError)
        producer.close(flush=False)
        world.broker.gate.set()


def undelivered_in_sync(world: World) -> tuple[SyncProducer, SyncDelivery]:
    producer = SyncProducer(
        world.cluster.bootstrap(), connections=MemoryConnections(world.cluster), linger_ms=0
    )
    producer.send_and_wait("bay", b"v")
    world.broker.gate.clear()
    return producer, producer.send("sea", b"v")


SYNC_WAITS: dict[str, Callable[[SyncDelivery], Any]] = {
    "result": lambda delivery: delivery.result(),
    "exception": lambda delivery: delivery.exception(),
    "add_done_callback": lambda delivery: delivery.add_done_callback(print),
}
each_sync_wait = pytest.mark.parametrize("wait", SYNC_WAITS)


@each_sync_wait
def test_a_sync_delivery_is_waited_for_after_a_fork(wait: str) -> None:
    world = World()
    producer, delivery = undelivered_in_sync(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forks, "generation", forks.generation + 1)
        assert isinstance(outcome_of(lambda: SYNC_WAITS[wait](delivery)), ClientForkedError)
    producer.close(flush=False)
    world.broker.gate.set()


@each_sync_wait
def test_a_sync_delivery_is_waited_for_in_the_clients_own_thread(wait: str) -> None:
    world = World()
    producer, delivery = undelivered_in_sync(world)
    raised: list[BaseException] = []

    async def callback() -> None:
        try:
            SYNC_WAITS[wait](delivery)
        except InvalidRequestError as error:
            raised.append(error)

    producer.ask(lambda _: callback())
    assert len(raised) == 1
    producer.close(flush=False)
    world.broker.gate.set()


def test_a_sync_delivery_is_waited_for_while_its_producer_is_closed() -> None:
    world = World()
    producer, delivery = undelivered_in_sync(world)
    ends: list[Any] = []
    waiting = threading.Thread(target=lambda: ends.append(outcome_of(delivery.result)))
    waiting.start()
    producer.close(flush=False)
    waiting.join(HANGS_AFTER_S)
    assert isinstance(ends[0], ClientClosedError)
    assert isinstance(outcome_of(delivery.result), ClientClosedError)
    world.broker.gate.set()


@pytest.mark.parametrize("call", ["assign", "seek"])
@pytest.mark.parametrize("ends_by", ["close", "fork", "another loop"])
def test_a_confirmation_is_awaited_after_the_end_of_its_client(call: str, ends_by: str) -> None:
    async def main() -> None:
        consumer = new_client(Consumer, Unresponsive(silent=True))
        sought = consumer.seek(PARTITIONS[0], 0) if call == "seek" else consumer.assign(PARTITIONS)
        expected: type[Exception] = InvalidRequestError
        with pytest.MonkeyPatch.context() as patch:
            if ends_by == "close":
                expected = ClientClosedError
                await consumer.close()
            elif ends_by == "fork":
                expected = ClientForkedError
                patch.setattr(forks, "generation", forks.generation + 1)
            if ends_by == "another loop":
                error = outcome_of(lambda: asyncio.run(by_await(sought)))
                assert isinstance(error, expected)
            else:
                with pytest.raises(expected):
                    await sought
        await consumer.close()

    run(main())


@pytest.mark.parametrize("ends_by", ["close", "fork"])
def test_an_iterator_is_used_after_the_end_of_its_client(ends_by: str) -> None:
    consumer = SyncConsumer("127.0.0.1:1", connections=Unresponsive(silent=True))
    consumer.assign(PARTITIONS)
    records = iter(consumer)
    with pytest.MonkeyPatch.context() as patch:
        if ends_by == "close":
            consumer.close()
        else:
            patch.setattr(forks, "generation", forks.generation + 1)
        error = outcome_of(lambda: next(records))
    assert isinstance(error, ClientClosedError if ends_by == "close" else ClientForkedError)
    consumer.close()


def test_a_trace_is_entered_after_the_end_of_its_client() -> None:
    """It waits for nothing."""

    async def test() -> None:
        admin = new_client(Admin, Unresponsive(silent=True))
        trace = admin.traced()
        await admin.close()
        with trace as trace_id:
            assert len(trace_id) == 32

    run(test())
