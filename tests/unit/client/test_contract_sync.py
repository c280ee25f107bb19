"""docs/client-guarantees.md for the clients without async: every public method × what may happen
to it. Threads take real time, so each test takes some milliseconds."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tidelog.client import SyncAdmin, SyncConsumer, SyncProducer
from tidelog.client.background import BackgroundClient
from tidelog.errors import ClientClosedError, ClientForkedError, ErrorCode, TidelogError
from tidelog.rpc import forks
from unit.client.contract_calls import PARTITIONS, Unwell, arguments_of

SYNC_CLIENTS = (SyncProducer, SyncConsumer, SyncAdmin)
CLOSE_BOUND_S = 1.0
HANGS_AFTER_S = 10.0


class PublicMethod(NamedTuple):
    client: type
    method: str

    def __str__(self) -> str:
        return f"{self.client.__name__}.{self.method}"

    def run(self, client: Any) -> Any:
        if self.method == "__iter__":
            return next(iter(client))
        method = getattr(client, self.method)
        return method(**arguments_of(method))


def public_methods() -> Iterator[PublicMethod]:
    for client in SYNC_CLIENTS:
        for name, _ in inspect.getmembers(client, inspect.isfunction):
            if name == "__iter__" or (not name.startswith("_") and name not in ("close", "ask")):
                yield PublicMethod(client, name)


each_method = pytest.mark.parametrize("method", list(public_methods()), ids=str)


@contextmanager
def silent(client: type) -> Iterator[tuple[Any, Unwell]]:
    """A client whose brokers answer nothing; a consumer has a partition assigned."""
    connections = Unwell(silent=True)
    made = client("127.0.0.1:1", connections=connections)
    if isinstance(made, SyncConsumer):
        made.assign(PARTITIONS)
    try:
        yield made, connections
    finally:
        made.close()


class InThread:
    """Runs a method in a thread, and keeps how it ended."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error

    def ended(self, within_s: float) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()


def threads() -> int:
    return sum(thread.name == "tidelog-client" for thread in threading.enumerate())


@each_method
def test_a_call_of_another_thread_ends_soon_after_close(method: PublicMethod) -> None:
    before = threads()
    with silent(method.client) as (client, connections):
        call = InThread(lambda: method.run(client))
        waits = not call.ended(0.02)
        begun_s = time.monotonic()
        client.close(flush=False) if method.client is SyncProducer else client.close()
        assert call.ended(HANGS_AFTER_S)
        assert time.monotonic() - begun_s < CLOSE_BOUND_S
        assert not waits or isinstance(call.error, ClientClosedError)
        assert connections.closed == 1
    assert threads() == before


@each_method
def test_a_call_after_close_raises_client_closed(method: PublicMethod) -> None:
    with silent(method.client) as (client, connections):
        client.close()
        calls = connections.calls
        with pytest.raises(ClientClosedError):
            method.run(client)
        assert connections.calls == calls


@each_method
def test_a_call_after_a_fork_raises_client_forked(method: PublicMethod) -> None:
    with silent(method.client) as (client, connections), pytest.MonkeyPatch.context() as patch:
        # As the child sees it; tests/integration/test_client_forks.py forks.
        patch.setattr(forks, "generation", forks.generation + 1)
        with pytest.raises(ClientForkedError):
            method.run(client)
        client.close()
        assert not connections.closed, "it is the parent's"


@each_method
def test_a_call_in_the_clients_own_thread_is_rejected(method: PublicMethod) -> None:
    """As from a callback: it would wait for itself for ever."""
    with silent(method.client) as (client, _):
        raised: list[TidelogError] = []

        async def callback(_: Any) -> None:
            for call in (lambda: method.run(client), client.close):
                try:
                    call()
                except TidelogError as error:
                    raised.append(error)

        client.ask(callback)
        assert [error.code for error in raised] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("client", SYNC_CLIENTS, ids=lambda client: client.__name__)
def test_many_threads_call_and_close_at_once(client: type) -> None:
    method = next(m for m in public_methods() if m.client is client)
    with silent(client) as (made, connections):
        calls = [InThread(lambda: method.run(made)) for _ in range(8)]
        closes = [InThread(made.close) for _ in range(4)]
        for each in (*calls, *closes):
            assert each.ended(HANGS_AFTER_S)
        assert all(isinstance(call.error, ClientClosedError | None) for call in calls)
        assert [close.error for close in closes] == [None] * 4
        assert connections.closed == 1


@pytest.mark.parametrize("client", SYNC_CLIENTS, ids=lambda client: client.__name__)
def test_a_client_that_is_never_closed_ends_with_its_last_reference(client: type) -> None:
    before = threads()
    forgotten = [client("127.0.0.1:1", connections=Unwell(silent=True))]
    with pytest.warns(ResourceWarning, match="was not closed"):
        forgotten.clear()
    until_s = time.monotonic() + HANGS_AFTER_S
    while threads() > before and time.monotonic() < until_s:
        time.sleep(0.001)
    assert threads() == before


def test_what_is_still_running_when_the_client_stops_ends_with_client_closed() -> None:
    """Also for a client that does not end its calls by itself."""

    class Stubborn:
        async def close(self) -> None: ...

        async def wait(self) -> None:

            await asyncio.sleep(3600)

    client = BackgroundClient(Stubborn)
    call = InThread(lambda: client.ask(lambda stubborn: stubborn.wait()))
    assert not call.ended(0.02)
    client.close()
    assert call.ended(HANGS_AFTER_S)
    assert isinstance(call.error, ClientClosedError)


def test_a_client_works_within_a_running_event_loop() -> None:

    async def main() -> None:
        with silent(SyncAdmin) as (admin, _):
            call = InThread(admin.list_topics)
            await asyncio.sleep(0.01)
            admin.close()
            assert call.ended(HANGS_AFTER_S)
            assert isinstance(call.error, ClientClosedError)

    asyncio.run(main())


def test_a_process_ends_at_once_that_has_not_closed_its_clients() -> None:
    script = (
        "from tidelog.client import SyncAdmin, SyncConsumer, SyncProducer\n"
        "clients = [c('127.0.0.1:1') for c in (SyncAdmin, SyncConsumer, SyncProducer)]\n"
        "clients[1].assign([('sea', 0)])\n"
        "print('done')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
