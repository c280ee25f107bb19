"""Shares the turns of the event loop among all requests of one kind.

A request that yields after each slice of its work blocks the loop for one slice at most. A thousand
such requests that are woken together block it for a thousand slices, because each of them runs in
the next turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

# Does part of the work, and returns how much.
Step: TypeAlias = Callable[[], int]


class SharedTurns:
    """Lets requests work in the order in which they ask, up to `work_per_turn` in one turn.

    The work of a step is known only afterwards, so it may exceed a turn. Later turns have less room
    then.
    """

    def __init__(self, work_per_turn: int) -> None:
        self._work_per_turn = work_per_turn
        self._room = work_per_turn
        self._queue: deque[Step] = deque()
        self._is_scheduled = False
        self._is_working = False

    def __len__(self) -> int:
        """The number of steps that wait for a later turn."""
        return len(self._queue)

    def do(self, step: Step) -> None:
        """Calls `step` at once if this turn has room, or in a later turn."""
        self._queue.append(step)
        self._work()

    async def take(self, work: int) -> None:
        """Waits for a turn with room, and takes `work` of it."""
        if not self._queue and self._room > 0:
            self.spend(work)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def grant() -> int:
            if granted.done():
                return 0
            granted.set_result(None)
            return work

        self.do(grant)
        await granted

    def spend(self, work: int) -> None:
        """Takes `work` of this turn, or of the next ones, without waiting."""
        self._room -= work
        self._schedule()

    def _work(self) -> None:
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._queue and self._room > 0:
                self._room -= self._queue.popleft()()
        finally:
            self._is_working = False
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._queue or self._room < self._work_per_turn):
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._room = min(self._work_per_turn, self._room + self._work_per_turn)
        self._work()
