"""Runs commands in process against an in-memory cluster. The event loop of the cluster has its
own thread, because a command runs a loop itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner, Result

from tidelog.cli.__main__ import app
from tidelog.cli.session import Session
from tidelog.model import Record, TopicPartition
from unit.cli.scripted_controller import ScriptedController
from unit.client.fake_broker import FakeCluster

_Result = TypeVar("_Result")
WAIT_SECONDS = 20


@dataclass
class Commands:
    """`run` runs `tidelog` with the given arguments."""

    cluster: FakeCluster
    loop: asyncio.AbstractEventLoop

    def run(
        self, *arguments: str, input_: str | bytes | None = None, interactive: bool = False
    ) -> Result:
        session = Session(",".join(self.cluster.bootstrap()), interactive=interactive)
        return CliRunner().invoke(
            app, list(arguments), input=input_, obj=session, catch_exceptions=False
        )

    @property
    def controller(self) -> ScriptedController:
        controller = self.cluster.controller
        assert isinstance(controller, ScriptedController)
        return controller

    def in_loop(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_SECONDS)

    def values(self, topic: str) -> list[bytes | None]:
        return [
            value
            for partition in self.cluster.topics[topic].partitions
            for value in partition.values()
        ]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """Two brokers and a controller; topic "sea" has two partitions."""
    monkeypatch.delenv("TIDELOG_BOOTSTRAP", raising=False)
    monkeypatch.delenv("TIDELOG_CONTEXT", raising=False)
    monkeypatch.delenv("TIDELOG_REQUESTED_BY", raising=False)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-cluster", daemon=True)
    thread.start()
    commands = Commands(FakeCluster(), loop)

    async def start() -> None:
        await commands.cluster.start(2)
        commands.cluster.controller = await ScriptedController(commands.cluster, 7).start()  # type: ignore[abstract]
        commands.cluster.create("sea", [0, 1])

    commands.in_loop(start())
    yield commands
    commands.in_loop(commands.cluster.close())
    loop.call_soon_threadsafe(loop.stop)
    thread.join(WAIT_SECONDS)
    loop.close()


def record(
    value: bytes | None, *, key: bytes | None = None, offset: int = 0, partition: int = 0
) -> Record:
    where = TopicPartition("sea", partition)
    return Record(*where, offset, 1_700_000_000_000, key, value, (), 1)
