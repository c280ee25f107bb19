"""The prober as its caller sees it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Probe:
    """Answers of one service: when each was asked for, and how long it took (seconds)."""

    def __init__(self) -> None:
        self.answers: list[tuple[float, float]] = []
        self.came = asyncio.Event()

    def longest_s(self, since: float) -> float:
        """Of the answers that were asked for since then, or were not there yet then."""
        return max((took for began, took in self.answers if began + took >= since), default=0.0)

    async def next(self) -> None:
        self.came.clear()
        await self.came.wait()


@asynccontextmanager
async def probing(target: str) -> AsyncIterator[Probe]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.pauses.prober", target),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
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
        began, took = line.split()
        probe.answers.append((float(began), float(took)))
        probe.came.set()
