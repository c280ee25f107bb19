"""When records were acknowledged, and how long it ever took until the next one."""

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
        """Returns when so many records are acknowledged."""
        self._wanted = count
        self._reached.clear()
        if len(self.keys) < count:
            await self._reached.wait()

    @property
    def count(self) -> int:
        return len(self.keys)

    def gap_around(self, moment: float, partitions: Iterable[int]) -> tuple[float, float]:
        """The longest time without an acknowledgement on any of these partitions that
        contains `moment` or begins within a second after it; and when it ended. A leader
        that is dying may still answer, hence the second."""
        worst = (0.0, moment)
        for partition in partitions:
            for before, after in pairwise(self._times.get(partition, ())):
                if after >= moment and before <= moment + 1.0 and after - before > worst[0]:
                    worst = (after - before, after)
        return worst
