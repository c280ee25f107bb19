"""The prober as its caller sees it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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


@asynccontextmanager
async def probing(target: str, pid: int | None = None) -> AsyncIterator[Probe]:
    """`pid`: of the service; None: it is not asked for how long that had no processor."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.pauses.prober", target, *([str(pid)] if pid else [])),
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
        began, took, waited = map(float, line.split())
        probe.answers.append((began, took, waited))
        probe.came.set()
