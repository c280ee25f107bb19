"""docs/client-guarantees.md: every public call of the clients × every event that may affect it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tidelog.client import BootstrapUnresolvedError, Consumer, Producer
from tidelog.client.cluster_metadata import UNRESOLVED_TIMEOUT_MS
from tidelog.client.lifecycle import SLICE_CALLS
from tidelog.client.producers_codec import ANSWER_GRACE_MS, IDENTITY_TIMEOUT_MS
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc import forks
from unit.client.contract_calls import (
    CLIENTS,
    CLOSED,
    PublicCall,
    Unresponsive,
    new_client,
    outcome,
    properties,
    public_calls,
)
from unit.client.idempotent_world import World, milliseconds
from unit.metadata.virtual_time import run, virtual_clock

GUARANTEES = Path(__file__).parents[3] / "docs" / "client-guarantees.md"
# A waiting call ends within this time after `close`.
CLOSE_BOUND_MS = 1_000
# The longest default timeout, that of deliveries, and a margin.
LONGEST_MS = 130_000
# A timeout that tests give, and the limit of a last request that began before its end.
GIVEN_MS = 1_000
LAST_REQUEST_MS = IDENTITY_TIMEOUT_MS + ANSWER_GRACE_MS
# These raise INVALID_REQUEST where no partition, or not the named one, is assigned.
NEED_AN_ASSIGNMENT = frozenset(
    f"Consumer.{name}"
    for name in ("__aiter__", "__anext__", "poll", "poll_batches", "position", "seek")
)
# These only access memory: they have nothing to wait for.
PLAIN_CALLS = frozenset(
    {
        "Admin.new_operation_id",
        "Admin.traced",
        "Consumer.position",
        "Producer.begin_at",
    }
)

each_call = pytest.mark.parametrize("call", public_calls(*CLIENTS), ids=str)
each_fault = pytest.mark.parametrize("silent", [True, False], ids=["silent", "dead"])


def on_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    def wrapped(**arguments: Any) -> None:
        async def main() -> None:
            await test(**arguments)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, "tasks are left behind"

        run(main())

    wrapped.__name__ = test.__name__
    wrapped.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return wrapped


async def close_soon(client: Any) -> None:
    begun_ms = virtual_clock().monotonic_ms()
    await (client.close(flush=False) if isinstance(client, Producer) else client.close())
    assert virtual_clock().monotonic_ms() - begun_ms <= CLOSE_BOUND_MS


@each_fault
@each_call
@on_virtual_time
async def test_a_call_ends_soon_after_close(call: PublicCall, silent: bool) -> None:
    connections = Unresponsive(silent=silent)
    client = new_client(call.client, connections)
    task = asyncio.create_task(call.start(client))
    await milliseconds(100)
    waits = not task.done()
    await close_soon(client)
    await asyncio.sleep(0)
    assert task.done()
    found = await outcome(task)
    assert found == CLOSED or not waits
    assert connections.closed == 1


@each_fault
@each_call
@on_virtual_time
async def test_a_call_ends_with_an_error_of_its_own_within_its_timeout(
    call: PublicCall, silent: bool
) -> None:
    client = new_client(call.client, Unresponsive(silent=silent))
    task = asyncio.create_task(call.start(client))
    begun_ms = virtual_clock().monotonic_ms()
    assert await outcome(task) in ("returned", "REQUEST_TIMED_OUT")
    assert virtual_clock().monotonic_ms() - begun_ms <= LONGEST_MS
    await close_soon(client)


@each_call
@on_virtual_time
async def test_a_call_ends_soon_where_no_bootstrap_name_can_be_resolved(call: PublicCall) -> None:
    client = new_client(call.client, Unresponsive(silent=False, unresolved=True))
    begun_ms = virtual_clock().monotonic_ms()
    with suppress(BootstrapUnresolvedError):
        await call.start(client)
    assert virtual_clock().monotonic_ms() - begun_ms <= UNRESOLVED_TIMEOUT_MS + 500
    await close_soon(client)


@on_virtual_time
async def test_a_call_waits_for_brokers_whose_name_is_resolved_in_time() -> None:
    connections = Unresponsive(silent=False, unresolved=True)
    client = new_client(Producer, connections)
    task = asyncio.create_task(client.partitions_of("sea"))
    await milliseconds(UNRESOLVED_TIMEOUT_MS - 200)
    connections.unresolved = False
    await milliseconds(UNRESOLVED_TIMEOUT_MS)
    assert not task.done()
    # From then on the full time is available again.
    connections.unresolved = True
    with pytest.raises(BootstrapUnresolvedError, match=r"\(127\.0\.0\.1:1\)") as unresolved:
        await task
    assert not unresolved.value.outcome_unknown
    await close_soon(client)


@each_fault
@pytest.mark.parametrize("call", [c for c in public_calls(*CLIENTS) if c.takes_a_timeout], ids=str)
@on_virtual_time
async def test_a_call_ends_within_its_timeout(call: PublicCall, silent: bool) -> None:
    client = call.client(
        [f"127.0.0.1:{port}" for port in range(1, 10)],
        connections=Unresponsive(silent=silent),
        clock=virtual_clock(),
    )
    if call.client is Consumer:
        client.assign([("sea", 0)])
    task = asyncio.create_task(call.start(client, timeout_ms=GIVEN_MS))
    begun_ms = virtual_clock().monotonic_ms()
    assert await outcome(task) in ("returned", "REQUEST_TIMED_OUT")
    assert virtual_clock().monotonic_ms() - begun_ms <= GIVEN_MS + LAST_REQUEST_MS
    await close_soon(client)


@each_fault
@each_call
@on_virtual_time
async def test_a_call_without_an_assignment_ends_at_once_or_within_its_timeout(
    call: PublicCall, silent: bool
) -> None:
    client = new_client(call.client, Unresponsive(silent=silent), assigned=())
    task = asyncio.create_task(call.start(client))
    begun_ms = virtual_clock().monotonic_ms()
    found = await outcome(task)
    assert found in ("returned", "REQUEST_TIMED_OUT", "INVALID_REQUEST")
    assert (found == "INVALID_REQUEST") == (str(call) in NEED_AN_ASSIGNMENT)
    bound_ms = 0 if found == "INVALID_REQUEST" else LONGEST_MS
    assert virtual_clock().monotonic_ms() - begun_ms <= bound_ms
    await close_soon(client)


@pytest.mark.parametrize("call", public_calls(Consumer), ids=str)
@on_virtual_time
async def test_a_call_of_a_consumer_without_an_assignment_ends_soon_after_close(
    call: PublicCall,
) -> None:
    client = new_client(call.client, Unresponsive(silent=True), assigned=())
    task = asyncio.create_task(call.start(client))
    await milliseconds(100)
    waits = not task.done()
    await close_soon(client)
    assert await outcome(task) == CLOSED or not waits


@pytest.mark.parametrize("method", ["poll", "poll_batches", "__anext__"])
@on_virtual_time
async def test_a_waiting_call_ends_once_nothing_is_assigned_any_more(method: str) -> None:
    consumer = World().consumer()
    consumer.assign([("sea", 0)])
    task = asyncio.create_task(PublicCall(Consumer, method).start(consumer))
    await milliseconds(100)
    consumer.assign([])
    await milliseconds(1)
    assert task.done()
    assert await outcome(task) == "INVALID_REQUEST"
    await consumer.close()


@each_fault
@each_call
@on_virtual_time
async def test_a_cancelled_call_raises_cancelled_error_and_leaves_the_client_usable(
    call: PublicCall, silent: bool
) -> None:
    client = new_client(call.client, Unresponsive(silent=silent))
    task = asyncio.create_task(call.start(client))
    await milliseconds(50)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
    again = asyncio.create_task(call.start(client))
    await milliseconds(50)
    assert not again.done() or (await outcome(again)) != CLOSED
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
    await close_soon(client)


@each_fault
@each_call
@on_virtual_time
async def test_a_cancelled_call_changes_nothing_for_another_waiting_one(
    call: PublicCall, silent: bool
) -> None:
    client = new_client(call.client, Unresponsive(silent=silent))
    begun_ms = virtual_clock().monotonic_ms()
    given_up, other = (asyncio.create_task(call.start(client)) for _ in range(2))
    await milliseconds(50)
    given_up.cancel()
    assert await outcome(other) in ("returned", "REQUEST_TIMED_OUT")
    assert virtual_clock().monotonic_ms() - begun_ms <= LONGEST_MS
    await asyncio.gather(given_up, return_exceptions=True)
    await close_soon(client)


@each_call
@on_virtual_time
async def test_a_call_cancelled_and_closed_at_once_is_cancelled(call: PublicCall) -> None:
    client = new_client(call.client, Unresponsive(silent=True))
    task = asyncio.create_task(call.start(client))
    await milliseconds(50)
    waits = not task.done()
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    task.cancel()
    outcomes = await asyncio.gather(task, return_exceptions=True)
    await closing
    await close_soon(client)
    if waits:
        assert isinstance(outcomes[0], (asyncio.CancelledError, TidelogError))


@each_call
@on_virtual_time
async def test_a_call_after_close_raises_client_closed_and_connects_nowhere(
    call: PublicCall,
) -> None:
    connections = Unresponsive(silent=False)
    client = new_client(call.client, connections)
    await close_soon(client)
    calls = connections.calls
    with pytest.raises(TidelogError) as closed:
        await call.start(client)
    assert closed.value.code is ErrorCode.CLIENT_CLOSED
    await milliseconds(200)
    assert connections.calls == calls


@each_call
@on_virtual_time
async def test_a_call_after_a_fork_raises_client_forked(call: PublicCall) -> None:
    connections = Unresponsive(silent=False)
    client = new_client(call.client, connections)
    with pytest.MonkeyPatch.context() as patch:
        # The client sees this in the child; tests/integration/test_client_forks.py forks.
        patch.setattr(forks, "generation", forks.generation + 1)
        with pytest.raises(TidelogError) as forked:
            await call.start(client)
        assert forked.value.code is ErrorCode.CLIENT_FORKED
        await client.close()
        assert not connections.closed, "it is the parent's"
    await close_soon(client)


@each_call
@on_virtual_time
async def test_a_call_in_another_threads_loop_is_rejected(call: PublicCall) -> None:
    client = new_client(call.client, Unresponsive(silent=False))
    # The first call binds the client to its loop.
    client._lifecycle.check()
    raised: list[BaseException] = []

    def elsewhere() -> None:
        for work in (call.start, lambda client: client.close()):
            try:
                asyncio.run(work(client))
            except BaseException as error:
                raised.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert [getattr(error, "code", error) for error in raised] == [ErrorCode.INVALID_REQUEST] * 2
    assert "event loop" in str(raised[0])
    await close_soon(client)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
@on_virtual_time
async def test_properties_can_be_read_after_close_and_after_a_fork(client: type) -> None:
    made = new_client(client, Unresponsive(silent=False))
    names = [name for owner, name in properties(client) if owner is client]
    before = {name: getattr(made, name) for name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forks, "generation", forks.generation + 1)
        assert {name: getattr(made, name) for name in names} == before
    await close_soon(made)
    assert {name: getattr(made, name) for name in names} == before
    guarantees = GUARANTEES.read_text()
    assert [name for name in names if f"`{client.__name__}.{name}`" not in guarantees] == []


@pytest.mark.parametrize(
    "call", [c for c in public_calls(*CLIENTS) if str(c) not in PLAIN_CALLS], ids=str
)
@on_virtual_time
async def test_consecutive_calls_let_other_tasks_run(call: PublicCall) -> None:
    """Even if all that is needed is known and buffered, so that the call has nothing to wait
    for.
    """
    world = World()
    if call.client is Producer:
        client: Any = world.producer(linger_ms=60_000, batch_bytes=1 << 20)
        await client.partitions_of("sea")
    elif call.client is Consumer:
        async with world.producer() as producer:
            await (await producer.send_many("sea", [b"v"] * 2 * SLICE_CALLS))
        client = world.consumer()
        await client.assign_topic("sea")
        await milliseconds(100)
    else:
        client = new_client(call.client, Unresponsive(silent=True))

    async def call_in_a_row() -> None:
        for _ in range(SLICE_CALLS + 1):
            await call.start(client)

    task = asyncio.create_task(call_in_a_row())
    # Until this task runs again, the other one has run without waiting.
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await close_soon(client)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
@on_virtual_time
async def test_close_can_be_cancelled_and_repeated_and_ends_everything(client: type) -> None:
    connections = Unresponsive(silent=True)
    made = new_client(client, connections)
    for cancelled_after_ms in (0, 1):
        closing = asyncio.create_task(made.close())
        await milliseconds(cancelled_after_ms)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
    await asyncio.gather(made.close(), made.close())
    await made.close()
    assert connections.closed == 1


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
@on_virtual_time
async def test_close_of_an_unused_client_that_another_loop_closes_is_rejected(
    client: type,
) -> None:
    made = new_client(client, Unresponsive(silent=True), assigned=())
    closing = asyncio.create_task(made.close())
    await asyncio.sleep(0)
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(made.close())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert [getattr(error, "code", error) for error in raised] == [ErrorCode.INVALID_REQUEST]
    await closing


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_client_is_closed_after_its_event_loop(client: type) -> None:
    connections = Unresponsive(silent=True)
    made: list[Any] = []

    async def use() -> None:
        made.append(new_client(client, connections))
        if client is Producer:
            await asyncio.wait([asyncio.create_task(made[0].flush())])

    async def close() -> None:
        await made[0].close()
        await made[0].close()

    run(use())
    run(close())
    assert connections.closed >= 1


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_call_without_an_event_loop_is_rejected(client: type) -> None:
    made = client("127.0.0.1:1", connections=Unresponsive(silent=True))
    with pytest.raises(TidelogError, match="without an event loop"):
        made._lifecycle.check()


@on_virtual_time
async def test_no_record_is_lost_where_polls_are_cancelled_repeatedly() -> None:
    world = World()
    async with world.producer() as producer:
        await (await producer.send_many("sea", [b"%d" % n for n in range(200)]))
    async with world.consumer() as consumer:
        await consumer.assign_topic("sea")
        read: list[bytes | None] = []
        while len(read) < 200:
            try:
                async with asyncio.timeout(0.0005):
                    read += [record.value for record in await consumer.poll(10, max_records=7)]
            except TimeoutError:
                await milliseconds(1)
    assert read == [b"%d" % n for n in range(200)]


@on_virtual_time
async def test_a_consumer_is_closed_while_it_is_iterated() -> None:
    world = World()
    async with world.producer() as producer:
        await (await producer.send_many("sea", [b"a", b"b"]))
    consumer = world.consumer()
    await consumer.assign_topic("sea")
    read: list[bytes | None] = []
    closing: list[asyncio.Task[None]] = []

    async def iterate() -> None:
        async for record in consumer:
            read.append(record.value)
            if len(read) == 2:
                closing.append(asyncio.create_task(consumer.close()))

    with pytest.raises(TidelogError) as closed:
        await iterate()
    await closing[0]
    assert read == [b"a", b"b"]
    assert closed.value.code is ErrorCode.CLIENT_CLOSED
