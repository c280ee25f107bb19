"""The matrix of docs/client-guarantees.md has a row for every public call, of every kind."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import tidelog.client
from tidelog.client import (
    Admin,
    Consumer,
    Producer,
    SyncAdmin,
    SyncConsumer,
    SyncProducer,
)
from tidelog.errors import ErrorCode, TidelogError
from unit.client.contract_calls import (
    CLIENTS,
    SYNC_CLIENTS,
    PublicCall,
    Unresponsive,
    exported_clients,
    new_client,
    public_calls,
)
from unit.metadata.virtual_time import run


def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any) -> Any:
        return method(*arguments)

    return call


class Planted:
    """A client with unguarded calls."""

    async def coroutine(self) -> None:
        await asyncio.sleep(3600)

    def future(self) -> asyncio.Future[None]:
        return asyncio.ensure_future(asyncio.sleep(3600))

    async def generator(self) -> AsyncIterator[None]:
        await asyncio.sleep(3600)
        yield

    @wrapped
    async def wrapped_coroutine(self) -> None:
        await asyncio.sleep(3600)

    def plain(self) -> int:
        return 1

    @staticmethod
    def static() -> int:
        return 1

    @classmethod
    def of_class(cls) -> int:
        return 1

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[int]:
        yield 1

    def _private(self) -> None: ...

    async def close(self) -> None: ...


ROWS = [
    "__aenter__",
    "__iter__",
    "coroutine",
    "future",
    "generator",
    "of_class",
    "plain",
    "static",
    "wrapped_coroutine",
]


def test_a_public_call_of_any_kind_has_a_row() -> None:
    assert [call.method for call in public_calls(Planted)] == ROWS


@pytest.mark.parametrize("method", ["coroutine", "future", "generator", "wrapped_coroutine"])
def test_a_row_waits_for_the_result_of_the_call(method: str) -> None:
    async def main() -> None:
        task = asyncio.create_task(PublicCall(Planted, method).start(Planted()))
        await asyncio.sleep(1)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])

    run(main())


def test_all_exported_clients_are_in_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(CLIENTS) == {Producer, Consumer, Admin}
    assert set(SYNC_CLIENTS) == {SyncProducer, SyncConsumer, SyncAdmin}
    monkeypatch.setattr(tidelog.client, "Planted", Planted, raising=False)
    monkeypatch.setattr(tidelog.client, "__all__", [*tidelog.client.__all__, "Planted"])
    assert Planted in exported_clients()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_async_with_does_not_enter_a_closed_client(client: type) -> None:
    async def main() -> None:
        made = new_client(client, Unresponsive(silent=True))
        await made.close()
        entered = False
        with pytest.raises(TidelogError) as closed:
            async with made:
                entered = True
        assert closed.value.code is ErrorCode.CLIENT_CLOSED
        assert not entered

    run(main())
