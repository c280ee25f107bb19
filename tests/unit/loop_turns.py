"""Counts how often work yields to the event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Made = TypeVar("_Made")


def in_one_turn(work: Coroutine[Any, Any, _Made]) -> _Made:
    """Runs the work and fails if it waits for anything."""
    try:
        work.send(None)
    except StopIteration as done:
        made: _Made = done.value
        return made
    raise AssertionError("it waits, for the loop's next turn at least")


class Turns:
    """Counts the turns of other tasks in the loop."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> "Turns":
        self._counting = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._counting.cancel()

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def taken(self) -> int:
        """The number of turns since the last call."""
        count, self.count = self.count, 0
        return count
