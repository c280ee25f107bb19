"""How long a service's event loop was held up: seen from outside, by a prober, or by the loop
itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from unittest import mock

_IN_SERVICES = Path(__file__).parent / "in_services"


class Probe:
    """Answers of one service: when each was asked for, how long it took, and for how long of that
    the service had no processor (seconds)."""

    def __init__(self) -> None:
        self.answers: list[tuple[float, float, float]] = []
        self.came = asyncio.Event()

    def longest_s(self, since: float) -> float:
        """Of the answers that were asked for since then, or were not there yet then."""
        return max((took for _, took, _ in self._since(since)), default=0.0)

    def longest_own_s(self, since: float) -> float:
        """Likewise, without the time in which others had the processor."""
        return max((took - waited for _, took, waited in self._since(since)), default=0.0)

    def _since(self, since: float) -> list[tuple[float, float, float]]:
        return [answer for answer in self.answers if answer[0] + answer[1] >= since]

    async def next(self) -> None:
        self.came.clear()
        await self.came.wait()


@contextmanager
def loops_that_report(directory: Path) -> Iterator[None]:
    """Services that start meanwhile report what holds their event loops up."""
    directory.mkdir(parents=True, exist_ok=True)
    path = f"{_IN_SERVICES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    variables = {"PYTHONPATH": path, "PAUSES_DIRECTORY": str(directory)}
    with mock.patch.dict(os.environ, variables):
        yield


def reports_of(pid: int) -> contextlib.AbstractAsyncContextManager[Probe]:
    """Of a service that was started under `loops_that_report`."""
    path = Path(os.environ["PAUSES_DIRECTORY"]) / str(pid)
    return _lines_of("tail", "-n", "+1", "-f", str(path))


def probing(target: str) -> contextlib.AbstractAsyncContextManager[Probe]:
    """From a process of its own."""
    return _lines_of(sys.executable, "-m", "bench.pauses.prober", target)


@asynccontextmanager
async def _lines_of(*command: str) -> AsyncIterator[Probe]:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    probe = Probe()
    assert process.stdin is not None
    assert process.stdout is not None
    reading = asyncio.create_task(_read(process.stdout, probe))
    try:
        await probe.next()
        yield probe
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        reading.cancel()


async def _read(lines: asyncio.StreamReader, probe: Probe) -> None:
    async for line in lines:
        began, took, waited = map(float, line.split())
        probe.answers.append((began, took, waited))
        probe.came.set()
