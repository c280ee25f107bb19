"""docs/client-guarantees.md for the clients without async: every public method × every event that
may affect it. Threads take real time, so each test takes some milliseconds.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tidelog.client import SyncAdmin, SyncConsumer, SyncProducer, cluster_metadata
from tidelog.client.background import BackgroundClient
from tidelog.errors import ClientClosedError, ClientForkedError, ErrorCode, TidelogError
from tidelog.rpc import forks
from unit.client.contract_calls import (
    PARTITIONS,
    SYNC_CLIENTS,
    PublicCall,
    Unresponsive,
    properties,
    public_calls,
)

CLOSE_BOUND_S = 1.0
# A call that needs nothing of a broker ends within this time, also on a busy machine.
WAITS_AFTER_S = 0.1
HANGS_AFTER_S = 10.0
# The timeouts of the tests, and the longest that a call may take then.
SHORT_MS = 50
TIMELY_S = 5.0
SHORT_SETTINGS: dict[type, dict[str, int]] = {
    SyncProducer: {"delivery_timeout_ms": SHORT_MS},
    SyncConsumer: {"offsets_timeout_ms": SHORT_MS},
    SyncAdmin: {"timeout_ms": SHORT_MS},
}
# These raise INVALID_REQUEST where no partition, or not the named one, is assigned.
NEED_AN_ASSIGNMENT = frozenset(
    f"SyncConsumer.{name}" for name in ("__iter__", "poll", "poll_batches", "position", "seek")
)

each_method = pytest.mark.parametrize("method", public_calls(*SYNC_CLIENTS), ids=str)
each_fault = pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "dead"])


@contextmanager
def unresponsive(
    client: type, *, is_silent: bool, assigned: bool = True, **settings: Any
) -> Iterator[tuple[Any, Unresponsive]]:
    connections = Unresponsive(silent=is_silent)
    made = client("127.0.0.1:1", connections=connections, **settings)
    if isinstance(made, SyncConsumer) and assigned:
        made.assign(PARTITIONS)
    try:
        yield made, connections
    finally:
        made.close()


def silent(client: type) -> AbstractContextManager[tuple[Any, Unresponsive]]:
    """A client whose brokers never answer; a consumer has a partition assigned."""
    return unresponsive(client, is_silent=True)


class InThread:
    """Runs a method in a thread, and records how it ended."""

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
def test_a_call_of_another_thread_ends_soon_after_close(method: PublicCall) -> None:
    before = threads()
    with silent(method.client) as (client, connections):
        call = InThread(lambda: method.run(client))
        waits = not call.ended(WAITS_AFTER_S)
        begun_s = time.monotonic()
        client.close(flush=False) if method.client is SyncProducer else client.close()
        assert call.ended(HANGS_AFTER_S)
        assert time.monotonic() - begun_s < CLOSE_BOUND_S
        assert not waits or isinstance(call.error, ClientClosedError)
        assert connections.closed == 1
    assert threads() == before


@each_method
def test_a_call_after_close_raises_client_closed(method: PublicCall) -> None:
    with silent(method.client) as (client, connections):
        client.close()
        calls = connections.calls
        with pytest.raises(ClientClosedError):
            method.run(client)
        assert connections.calls == calls


@each_method
def test_a_call_after_a_fork_raises_client_forked(method: PublicCall) -> None:
    with silent(method.client) as (client, connections), pytest.MonkeyPatch.context() as patch:
        # The client sees this in the child; tests/integration/test_client_forks.py forks.
        patch.setattr(forks, "generation", forks.generation + 1)
        with pytest.raises(ClientForkedError):
            method.run(client)
        client.close()
        assert not connections.closed, "it is the parent's"


@each_method
def test_a_call_in_the_clients_own_thread_is_rejected(method: PublicCall) -> None:
    """For example from a callback: it would wait for itself for ever."""
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


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metadata, "UNREACHABLE_TIMEOUT_MS", SHORT_MS)
    monkeypatch.setattr(cluster_metadata, "REQUEST_TIMEOUT_MS", SHORT_MS)


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("assigned", [True, False], ids=["assigned", "unassigned"])
@each_fault
@each_method
def test_a_call_ends_with_an_error_of_its_own_within_its_timeout(
    method: PublicCall, is_silent: bool, assigned: bool
) -> None:
    settings = SHORT_SETTINGS[method.client]
    with unresponsive(method.client, is_silent=is_silent, assigned=assigned, **settings) as (
        client,
        _,
    ):
        call = InThread(lambda: method.run(client, SHORT_MS))
        assert call.ended(TIMELY_S)
        code = getattr(call.error, "code", None)
        needs_an_assignment = not assigned and str(method) in NEED_AN_ASSIGNMENT
        if needs_an_assignment:
            assert code is ErrorCode.INVALID_REQUEST
        else:
            assert call.error is None or code is ErrorCode.REQUEST_TIMED_OUT


def test_clients_without_async_have_no_properties() -> None:
    """A property would be read in the caller's thread while the client's own thread writes."""
    assert properties(*SYNC_CLIENTS) == []


@each_method
def test_many_threads_call_and_close_at_once(method: PublicCall) -> None:
    with silent(method.client) as (made, connections):
        calls = [InThread(lambda: method.run(made)) for _ in range(8)]
        closes = [InThread(made.close) for _ in range(4)]
        for each in (*calls, *closes):
            assert each.ended(HANGS_AFTER_S)
        assert all(isinstance(call.error, ClientClosedError | None) for call in calls)
        assert [close.error for close in closes] == [None] * 4
        assert connections.closed == 1


@pytest.mark.parametrize("client", SYNC_CLIENTS, ids=lambda client: client.__name__)
def test_an_unclosed_client_ends_with_its_last_reference(client: type) -> None:
    before = threads()
    forgotten = [client("127.0.0.1:1", connections=Unresponsive(silent=True))]
    with pytest.warns(ResourceWarning, match="was not closed"):
        forgotten.clear()
    until_s = time.monotonic() + HANGS_AFTER_S
    while threads() > before and time.monotonic() < until_s:
        time.sleep(0.001)
    assert threads() == before


def test_a_call_still_running_when_the_client_stops_ends_with_client_closed() -> None:
    """Also for a client that does not end its calls itself."""

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


def test_a_process_with_unclosed_clients_ends_at_once() -> None:
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
