"""Threads that read from the disk and end when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tidelog_broker.storage.cold_reads import ColdReads
from unit.broker.broker_parts import Replicas, until_idle


class Threads:
    """`run_blocking` whose oldest job runs and ends when the test says so."""

    def __init__(self) -> None:
        self.running: list[asyncio.Future[None]] = []

    async def __call__(self, work: Callable[[], None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running.append(future)
        await future
        work()

    async def end(self) -> None:
        await until_idle()
        self.running.pop(0).set_result(None)
        await until_idle()

    async def end_all(self) -> None:
        while self.running:
            await self.end()


class ColdReplicas(Replicas):
    """`waits` counts how often the event loop itself waited for the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = Threads()
        self.cold_reads = ColdReads(self.disk, self._in_thread)
        self._waited_in_threads = 0

    async def _in_thread(self, work: Callable[[], None]) -> None:
        def counted() -> None:
            before = self.memory.waits
            try:
                work()
            finally:
                self._waited_in_threads += self.memory.waits - before

        await self.threads(counted)

    @property
    def waits(self) -> int:
        return self.memory.waits - self._waited_in_threads


@asynccontextmanager
async def reading(cold_reads: ColdReads) -> AsyncIterator[None]:
    """Run the body while threads read, and let the reads finish."""
    task = asyncio.create_task(cold_reads.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def cold_replicas() -> AsyncIterator[ColdReplicas]:
    replicas = ColdReplicas()
    async with reading(replicas.cold_reads):
        yield replicas
