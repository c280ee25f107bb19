"""The load in a separate process: other work of the bench, such as scraping all brokers, then adds
nothing to its latency."""

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
    """Runs a `Load` until it is stopped; the process returns the load with its results."""

    def __init__(self, load: Load) -> None:
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_run, args=(theirs, load), daemon=True)
        self._process.start()
        theirs.close()

    async def result(self) -> Load:
        """Returns once the load was stopped and every record has its outcome. Raises `RuntimeError`
        if the process died before."""
        try:
            load: Load = await asyncio.to_thread(self._connection.recv)
        except (EOFError, ConnectionResetError):
            raise RuntimeError(
                "the process of the load died; its output above has the reason"
            ) from None
        await asyncio.to_thread(self._process.join)
        return load

    def stop(self) -> None:
        with suppress(BrokenPipeError):  # it has died, as `result` reports
            self._connection.send(None)


def _run(connection: Connection, load: Load) -> None:
    uvloop.run(_until_stopped(connection, load))
    os.set_blocking(connection.fileno(), True)  # as before the loop waited for it
    connection.send(load)


async def _until_stopped(connection: Connection, load: Load) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(connection.fileno())
        load.stop()

    loop.add_reader(connection.fileno(), stop)
    await load.run()
