"""An event loop whose clock jumps to the next timer instead of waiting for it. It has no
threads, because those take real time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _InstantSelector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        if timeout is None and not events:
            raise RuntimeError("everything waits, and no timer will end it")
        self.now += timeout or 0
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant = _InstantSelector()
        super().__init__(self._instant)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Runs at once in the caller."""
        assert executor is None
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def time(self) -> float:
        return self._instant.now

    def stand_still(self, seconds: float) -> None:
        """Acts like a stopped process: timers that become due meanwhile fire late and all at
        once."""
        self._instant.now += seconds

    def monotonic_ms(self) -> int:
        return round(self.time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main)


def virtual_clock() -> VirtualTimeLoop:
    """The running loop, which is also a `Clock`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop
