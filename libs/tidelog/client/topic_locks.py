"""Locks by topic, which callers that send to the topic get in the order of their calls."""

from __future__ import annotations

import asyncio
from types import TracebackType

# Unused locks are kept for this many topics, and created again for others.
MAX_IDLE_LOCKS = 100


class TopicLocks:
    """Locks by topic: one for each topic with a caller, and MAX_IDLE_LOCKS more at most."""

    def __init__(self) -> None:
        self._locks: dict[str, TopicLock] = {}

    def of(self, topic: str) -> TopicLock:
        """Returns the lock of a topic. The caller enters it at once, by `async with`."""
        lock = self._locks.get(topic)
        if lock is None:
            lock = self._locks[topic] = TopicLock(self._locks, topic)
        return lock

    def is_free(self, topic: str) -> bool:
        """Returns whether no caller holds the lock or waits for it."""
        lock = self._locks.get(topic)
        return lock is None or lock.is_free

    def __len__(self) -> int:
        return len(self._locks)


class TopicLock(asyncio.Lock):
    def __init__(self, locks: dict[str, TopicLock], topic: str) -> None:
        super().__init__()
        self._locks = locks
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
        if not self._callers and len(self._locks) > MAX_IDLE_LOCKS:
            del self._locks[self._topic]
