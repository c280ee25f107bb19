"""Works on many partitions at once, and paces the transfer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from tidelog.client.clock import Clock

DEFAULT_PARALLELISM = 4

_Item = TypeVar("_Item")


class TransferProgress(NamedTuple):
    """What was transferred since the last report."""

    size_bytes: int
    records: int


OnProgress = Callable[[TransferProgress], None]


def no_progress(_: TransferProgress) -> None:
    """Ignores the progress."""


async def work_on(
    items: Iterable[_Item], parallelism: int, work: Callable[[deque[_Item]], Awaitable[None]]
) -> None:
    """Runs `parallelism` workers, each of which takes items until there are none. The first error
    ends all of them, and is raised."""
    left = deque(items)
    tasks = [asyncio.ensure_future(work(left)) for _ in range(min(parallelism, len(left)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_to_end(work: Callable[..., _Item], *arguments: Any) -> _Item:
    """Runs work in a thread. A cancelled caller waits for its end, because the next run may begin
    afterwards and write the same files."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


class Pace:
    """Limits bytes per second, over all workers together. None: no limit."""

    def __init__(self, bytes_per_second: int | None, clock: Clock) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._free_at_ms = 0.0

    async def spend(self, size_bytes: int) -> None:
        """Waits until all that was transferred, including these bytes, fits the limit."""
        if self._bytes_per_second is None:
            return
        now_ms = self._clock.monotonic_ms()
        self._free_at_ms = max(self._free_at_ms, now_ms)
        self._free_at_ms += size_bytes * 1000 / self._bytes_per_second
        await asyncio.sleep((self._free_at_ms - now_ms) / 1000)
