"""Tasks that run as long as the broker does, and what they may not do on the event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from tidelog.memory_shortage import described, is_memory_shortage
from tidelog_runtime.memory_reserve import MemoryReserve
from tidelog_runtime.metadata.store import StoreRolledBackError

_log = structlog.get_logger()

# Runs a blocking function off the loop; the simulator runs it in place.
RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]


class Faults:
    """A background task ends only when it is cancelled. Anything else is a fault, with
    which the broker must not go on half alive: `found` is set, and whoever runs it stops
    it. A store that was rolled back is no such fault: what needs it ends, and the data
    plane goes on. `reason`: of the first fault, for people; empty: there was none."""

    def __init__(self) -> None:
        self.found = asyncio.Event()
        self.reason = ""
        self._reserve: MemoryReserve | None = None

    def prepare_end(self, within_s: float) -> None:
        """Of this process: reserves memory, which the first fault frees. The process ends within
        so long after that fault, in whatever way."""
        self._reserve = MemoryReserve(within_s)

    def on_end(self, task: asyncio.Task[None]) -> None:
        """A task's done callback."""
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        assert error is not None
        if isinstance(error, StoreRolledBackError):
            _log.critical("task_failed", task=task.get_name(), exc_info=error)
            return
        if self._reserve is not None:
            self._reserve.release()
        self.reason = self.reason or f"task {task.get_name()} failed: {_what_failed(error)}"
        # Where memory or files ran out says nothing of why; any other traceback does.
        is_shortage = is_memory_shortage(error) or isinstance(error, OSError)
        _log.critical(
            "task_failed",
            task=task.get_name(),
            why=_what_failed(error),
            exc_info=None if is_shortage else error,
        )
        self.found.set()


def _what_failed(error: BaseException) -> str:
    if is_memory_shortage(error):
        return f"{described(error)}, or give it fewer partitions and smaller requests"
    return f"{type(error).__name__}: {error}"


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when the first of these has ended; the others are cancelled and gone."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def retry_pause(seconds: float, rng: random.Random) -> None:
    """About so long: who failed together shall not try again together."""
    await asyncio.sleep(seconds * rng.uniform(0.5, 1.5))
