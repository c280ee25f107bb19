"""The delays of the services' event loops, as the services report them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tidelog_runtime.local.process import LocalProcess

_IN_SERVICES = Path(__file__).parent / "in_services"


class Delay(NamedTuple):
    """A delay of an event loop, as `in_services/sitecustomize.py` writes it, in seconds."""

    due: float
    late: float
    waited: float
    used: float
    used_by_loop: float

    @property
    def own(self) -> float:
        """The part in which the process computed.

        The loop's thread may have waited for a processor, or for a thread that held the interpreter
        lock and waited for a processor; the load of the machine causes both."""
        return min(self.late - self.waited, self.used)

    @property
    def alone(self) -> float:
        """The part in which no other thread of the process used a processor, whether the loop
        computed or waited, for example for a disk.

        If the machine is busy it contains the time in which such a thread held the interpreter lock
        and waited for a processor."""
        by_others = max(0.0, self.used - self.used_by_loop)
        return max(0.0, self.late - self.waited - by_others)


class Longest(NamedTuple):
    """The longest of some delays, of their `Delay.own` and of their `Delay.alone`, in seconds."""

    elapsed: float
    own: float
    alone: float

    @classmethod
    def of(cls, delays: Sequence[Delay]) -> Longest:
        return cls(
            max((delay.late for delay in delays), default=0.0),
            max((delay.own for delay in delays), default=0.0),
            max((delay.alone for delay in delays), default=0.0),
        )


class Reports:
    """The delays of one service's event loop."""

    def __init__(self) -> None:
        self.delays: list[Delay] = []
        self.arrived = asyncio.Event()

    async def longest_s(self, since: float) -> Longest:
        """Returns the longest of the delays that ended since then, once the loop runs."""
        await self.next()
        return Longest.of([d for d in self.delays if d.due + d.late >= since])

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
        reports.delays.append(Delay(*map(float, line.split())))
        reports.arrived.set()
