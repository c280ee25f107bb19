"""Machines: what outlives the processes that run on one."""

from __future__ import annotations

from simulation.disk import SimDisk
from tidelog_runtime.clock import Clock


class MachineClock:
    """`offset_ms`: by how much its wall clock is ahead of true time, while a fault lasts.
    `wrong_readings`: how often it was read while it was wrong. `is_lost`: the machine last rebooted
    while it was wrong. Then only other brokers can tell what time it is
    (`clock_check.MAX_OFF_MS`)."""

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
    """Its disk outlives processes, and reboots as far as it was synced."""

    def __init__(self, name: str, true_time: Clock) -> None:
        self.name = name
        self.disk = SimDisk()
        self.clock = MachineClock(true_time)
        self.boots = 1

    def reboot(self) -> None:
        self.boots += 1
        self.clock.is_lost = self.clock.offset_ms != 0

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"
