"""A producer's bounded memory. Callers that need more than is free wait in order."""

from __future__ import annotations

import asyncio
from collections import deque


class BufferBudget:
    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self.free_bytes = total_bytes
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, size_bytes: int) -> bool:
        """Takes the bytes at once if no caller waits and enough are free."""
        if self._waiters or self.free_bytes < self._cost(size_bytes):
            return False
        self.free_bytes -= self._cost(size_bytes)
        return True

    async def take(self, size_bytes: int) -> None:
        """Waits for the bytes. A size above the total counts as the total, so it waits until it is
        alone."""
        if self.try_take(size_bytes):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self._cost(size_bytes), granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give_back(size_bytes)
            else:
                # There may be room for the next waiters.
                self._grant()
            raise

    def give_back(self, size_bytes: int) -> None:
        self.free_bytes += self._cost(size_bytes)
        self._grant()

    def _grant(self) -> None:
        while self._waiters:
            cost, granted = self._waiters[0]
            if granted.done():  # its task was cancelled
                self._waiters.popleft()
                continue
            if cost > self.free_bytes:
                return
            self._waiters.popleft()
            self.free_bytes -= cost
            granted.set_result(None)

    def _cost(self, size_bytes: int) -> int:
        return min(size_bytes, self._total_bytes)
