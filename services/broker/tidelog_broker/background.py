"""Background tasks of the broker, and how blocking work leaves the event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from tidelog.memory_shortage import described, is_only_shortage, origin, shortage_in
from tidelog_runtime.memory_reserve import MemoryReserve, started_executor
from tidelog_runtime.metadata.store import StoreRolledBackError

_log = structlog.get_logger()

# Runs a blocking function outside the event loop; the simulator runs it in place.
RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]


def own_threads(count: int, name: str) -> RunBlocking:
    """Returns a function that runs work in `count` threads of its own."""
    executor = started_executor(count, name)

    async def run(work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(executor, work)

    return run


class Faults:
    """Notes background tasks that fail.

    A background task that ends with an exception is a fault, after which the broker must not keep
    running: `found` is set, and the caller that runs the broker stops it. A store that was rolled
    back is not a fault: the tasks that need the store end, and the data plane continues.

    `reason` describes the first fault for people; it is empty if there was none.
    """

    def __init__(self) -> None:
        self.found = asyncio.Event()
        self.reason = ""
        self._reserve: MemoryReserve | None = None

    def prepare_end(self, within_s: float) -> None:
        """Reserves memory that the first fault frees.

        The kernel ends the process `within_s` seconds after that fault if it has not ended by
        itself.
        """
        self._reserve = MemoryReserve(within_s)

    def on_end(self, task: asyncio.Task[None]) -> None:
        """The done callback of background tasks."""
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        assert error is not None
        if isinstance(error, StoreRolledBackError):
            _log.critical("task_failed", task=task.get_name(), exc_info=error)
            return
        if self._reserve is not None:
            self._reserve.release()
        # A task group raises a group.
        shortage = shortage_in(error)
        why = _what_failed(error, shortage)
        self.reason = self.reason or f"task {task.get_name()} failed: {why}"
        # The traceback of a shortage of memory or files does not show its cause; any other one
        # does.
        is_shortage = is_only_shortage(error) or isinstance(error, OSError)
        _log.critical(
            "task_failed",
            task=task.get_name(),
            why=why,
            exc_info=None if is_shortage else error,
            **({} if shortage is None else {"raised": origin(shortage)}),
        )
        self.found.set()


def _what_failed(error: BaseException, shortage: BaseException | None) -> str:
    if shortage is not None:
        return f"{described(shortage)}, or give it fewer partitions and smaller requests"
    return f"{type(error).__name__}: {error}"


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when the first of these has ended.

    Cancels the others and waits until they have ended.
    """
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def retry_pause(seconds: float, rng: random.Random) -> None:
    """Sleeps for 50 % to 150 % of `seconds`.

    Brokers that failed together must not retry together.
    """
    await asyncio.sleep(seconds * rng.uniform(0.5, 1.5))
