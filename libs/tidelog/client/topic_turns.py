"""Turns for sending to a topic: one caller after another, in the order of their calls."""

from __future__ import annotations

import asyncio
from types import TracebackType

# Unused turns are kept for this many topics, and created again for others.
MAX_IDLE_TURNS = 100


class TopicTurns:
    """Turns by topic: one for each topic with a caller, and MAX_IDLE_TURNS more at most."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    def of(self, topic: str) -> Turn:
        """Returns the turn of a topic. The caller enters it at once, by `async with`."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = Turn(self._turns, topic)
        return turn

    def is_free(self, topic: str) -> bool:
        """Returns whether no caller has the turn or waits for it."""
        turn = self._turns.get(topic)
        return turn is None or turn.is_free

    def __len__(self) -> int:
        return len(self._turns)


class Turn(asyncio.Lock):
    def __init__(self, turns: dict[str, Turn], topic: str) -> None:
        super().__init__()
        self._turns = turns
        self._topic = topic
        self._callers = 0

    @property
    def is_free(self) -> bool:
        return not self._callers

    async def __aenter__(self) -> None:
        self._callers += 1
        try:
            await self.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
        self._leave()

    def _leave(self) -> None:
        self._callers -= 1
        if not self._callers and len(self._turns) > MAX_IDLE_TURNS:
            del self._turns[self._topic]
