"""Machines, which outlive the processes that run on them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from simulation.disk import SimDisk
from tidelog_runtime.clock import Clock

# Half of the longest time that blocking work takes, and how often it takes much longer.
SYNC_S = 0.003
SLOW_SYNC_S = 0.4
SLOW_SYNC_PROBABILITY = 0.01
HANG_POLL_S = 0.1


class Blocking:
    """`run_blocking`: the work takes the time of a disk, and is done at some moment of it.

    While the disk hangs, the work does not begin.
    """

    def __init__(self, rng: random.Random, disk: SimDisk, *, syncs: bool = False) -> None:
        self._rng = rng
        self._disk = disk
        self._syncs = syncs

    async def __call__(self, work: Callable[[], None]) -> None:
        await asyncio.sleep(self._draw_s())
        # A fault begins and ends at any time.
        while self._disk.hangs(syncs=self._syncs):  # noqa: ASYNC110
            await asyncio.sleep(HANG_POLL_S)
        work()
        await asyncio.sleep(self._draw_s())

    def _draw_s(self) -> float:
        draw = self._rng.random()
        slowest = SLOW_SYNC_S if draw < SLOW_SYNC_PROBABILITY else SYNC_S
        return slowest * self._rng.random()


class MachineClock:
    """The clock of a machine.

    - `offset_ms`: how far its wall clock is ahead of true time, while a fault lasts
    - `wrong_readings`: how often it was read while it was wrong
    - `is_lost`: the clock was wrong when the machine last booted. Then only other brokers
      know what time it is (`clock_check.MAX_OFF_MS`).
    """

    def __init__(self, true_time: Clock) -> None:
        self._true_time = true_time
        self.offset_ms = 0
        self.wrong_readings = 0
        self.is_lost = False

    def monotonic_ms(self) -> int:
        return self._true_time.monotonic_ms()

    def wall_ms(self) -> int:
        self.wrong_readings += self.offset_ms != 0
        return self._true_time.wall_ms() + self.offset_ms


class Machine:
    """A machine. Its disk outlives processes, and keeps what was synced when it reboots."""

    def __init__(self, name: str, true_time: Clock) -> None:
        self.name = name
        self.disk = SimDisk()
        self.clock = MachineClock(true_time)
        self.boots = 1

    def booted(self) -> None:
        self.boots += 1
        self.clock.is_lost = self.clock.offset_ms != 0

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"
