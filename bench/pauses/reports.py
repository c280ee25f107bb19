"""The delays of the services' event loops, as the services report them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from unittest import mock

from tidelog_runtime.local.process import LocalProcess

_IN_SERVICES = Path(__file__).parent / "in_services"


class Reports:
    """The delays of one service's event loop, as `in_services/sitecustomize.py` writes them."""

    def __init__(self) -> None:
        self.delays: list[tuple[float, float, float]] = []
        self.arrived = asyncio.Event()

    async def longest_s(self, since: float) -> tuple[float, float]:
        """Returns the longest delay that ended since then, once the loop runs: with and without the
        time in which other processes had the processor."""
        await self.next()
        delays = [delay for delay in self.delays if delay[0] + delay[1] >= since]
        longest = max((late for _, late, _ in delays), default=0.0)
        return longest, max((late - waited for _, late, waited in delays), default=0.0)

    async def next(self) -> None:
        self.arrived.clear()
        await self.arrived.wait()


@contextmanager
def loops_that_report(directory: Path) -> Iterator[None]:
    """Services that start in this context report the delays of their event loops."""
    directory.mkdir(parents=True, exist_ok=True)
    path = f"{_IN_SERVICES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    variables = {"PYTHONPATH": path, "PAUSES_DIRECTORY": str(directory)}
    with mock.patch.dict(os.environ, variables):
        yield


@asynccontextmanager
async def reports_of(service: LocalProcess) -> AsyncIterator[Reports]:
    """The reports of a service that was started under `loops_that_report`."""
    path = Path(os.environ["PAUSES_DIRECTORY"]) / str(service.pid)
    process = await asyncio.create_subprocess_exec(
        *("tail", "-n", "+1", "-f", str(path)), stdout=asyncio.subprocess.PIPE
    )
    reports = Reports()
    assert process.stdout is not None
    reading = asyncio.create_task(_read(process.stdout, reports))
    try:
        await reports.next()
        yield reports
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        reading.cancel()


async def _read(lines: asyncio.StreamReader, reports: Reports) -> None:
    async for line in lines:
        due, late, waited = map(float, line.split())
        reports.delays.append((due, late, waited))
        reports.arrived.set()
