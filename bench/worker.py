"""A separate process for the work of clients: the other work of the bench then adds nothing to
their latency."""

from __future__ import annotations

import asyncio
import multiprocessing
import traceback
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import uvloop

_SPAWN = multiprocessing.get_context("spawn")  # a fork would share this process's channels

P = ParamSpec("P")
R = TypeVar("R")


class WorkerError(Exception):
    """The work failed, or the process died; the message has the traceback of the work."""


class Worker:
    """Runs coroutine functions of modules; arguments and results must be picklable."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs,), name=name, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    async def call(self, work: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs one piece of work at a time. Raises `WorkerError`."""
        self._connection.send((work, args, kwargs))
        try:
            failure, result = await asyncio.to_thread(self._connection.recv)
        except (EOFError, ConnectionResetError):
            raise WorkerError(
                f"the process {self._name} died; its output above has the reason"
            ) from None
        if failure:
            raise WorkerError(f"in the process {self._name}:\n{failure}")
        found: R = result
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.join)


def _serve(connection: Connection) -> None:
    while True:
        try:
            work, args, kwargs = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            connection.send(("", uvloop.run(work(*args, **kwargs))))
        except Exception:
            connection.send((traceback.format_exc(), None))
