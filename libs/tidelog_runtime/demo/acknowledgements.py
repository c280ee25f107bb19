"""The times at which records were acknowledged, and the longest gap between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise


class Acknowledgements:
    """Times in seconds of one monotonic clock, by partition."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.bytes = 0
        self._times: dict[int, list[float]] = {}
        self._wanted = 0
        self._reached = asyncio.Event()

    def note(self, partition: int, key: bytes, size: int, now: float) -> None:
        self.keys.append(key)
        self.bytes += size
        self._times.setdefault(partition, []).append(now)
        if len(self.keys) >= self._wanted:
            self._reached.set()

    async def reached(self, count: int) -> None:
        """Returns when this many records are acknowledged."""
        self._wanted = count
        self._reached.clear()
        if len(self.keys) < count:
            await self._reached.wait()

    @property
    def count(self) -> int:
        return len(self.keys)

    def gap_around(self, moment: float, partitions: Iterable[int]) -> tuple[float, float]:
        """Returns the longest time without acknowledgements around a moment, and when it ended.

        It is the longest gap on one of these partitions that contains `moment` or begins within
        a second after it. The second is needed because a dying leader may still answer.
        """
        worst = (0.0, moment)
        for partition in partitions:
            for before, after in pairwise(self._times.get(partition, ())):
                if after >= moment and before <= moment + 1.0 and after - before > worst[0]:
                    worst = (after - before, after)
        return worst
