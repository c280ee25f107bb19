"""The load in a process of its own, as clients are: what the bench does besides, such as reading
the metrics of all brokers, is then no part of what the load waits for."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from contextlib import suppress
from multiprocessing.connection import Connection

import uvloop

from bench.grow.load import Load

_SPAWN = multiprocessing.get_context("spawn")  # a fork would share this process's channels


class LoadProcess:
    """Runs a `Load` from now on until it is stopped; the load comes back with what it found."""

    def __init__(self, load: Load) -> None:
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_run, args=(theirs, load), daemon=True)
        self._process.start()
        theirs.close()

    async def result(self) -> Load:
        """Once it was stopped and all that was sent is settled. Raises `RuntimeError` where the
        process died before."""
        try:
            load: Load = await asyncio.to_thread(self._connection.recv)
        except (EOFError, ConnectionResetError):
            raise RuntimeError("the process of the load died; it says why above") from None
        await asyncio.to_thread(self._process.join)
        return load

    def stop(self) -> None:
        with suppress(BrokenPipeError):  # it has died, as `result` tells
            self._connection.send(None)


def _run(connection: Connection, load: Load) -> None:
    uvloop.run(_until_told(connection, load))
    os.set_blocking(connection.fileno(), True)  # as it was before a loop waited for it
    connection.send(load)


async def _until_told(connection: Connection, load: Load) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(connection.fileno())
        load.stop()

    loop.add_reader(connection.fileno(), stop)
    await load.run()
