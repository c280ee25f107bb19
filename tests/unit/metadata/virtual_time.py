"""An event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


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

    def time(self) -> float:
        return self._instant.now

    def stand_still(self, seconds: float) -> None:
        """As a process that is stopped: what is due meanwhile comes at once, and late."""
        self._instant.now += seconds

    def monotonic_ms(self) -> int:
        return round(self.time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main)


def virtual_clock() -> VirtualTimeLoop:
    """The running loop, which is a `Clock` too."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop
