"""When an active controller steps down because it can open no more files.

It cannot accept connections then. Open connections still work, but a broker or a client that
connects gets no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidelog.inspection.resource_pressures import HAND_OVER_AFTER_MS, ResourcePressure
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_runtime.clock import Clock
from tidelog_runtime.pressure.detection import OPEN_FILES
from tidelog_runtime.pressure.records import Pressure

CHECK_INTERVAL_SECONDS = 1.0


class FileExhaustion:
    """The check of one controller term. `is_due`: whether `until_due` has returned."""

    def __init__(
        self,
        own_id: int,
        own_pressures: Callable[[], Sequence[Pressure]],
        roster: ControllerRoster,
        clock: Clock,
    ) -> None:
        self._own_id = own_id
        self._own_pressures = own_pressures
        self._roster = roster
        self._clock = clock
        self._since_ms: int | None = None
        self.is_due = False

    async def until_due(self) -> str:
        """Waits until the controller has to step down; returns the reason.

        It waits while no standby can take over.
        """
        while not self.is_due:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            self.is_due = self.check()
        return (
            f"it could open no file for {HAND_OVER_AFTER_MS // 1_000} s, and controller "
            f"{self._standbys()[0]} can take over"
        )

    def check(self) -> bool:
        """Whether the controller has to step down now."""
        now_ms = self._clock.monotonic_ms()
        if not any(map(is_exhausted, self._own_pressures())):
            self._since_ms = None
            return False
        if self._since_ms is None:
            self._since_ms = now_ms
        return now_ms - self._since_ms >= HAND_OVER_AFTER_MS and bool(self._standbys())

    def _standbys(self) -> list[int]:
        """Returns the standbys in ascending order, without those that report exhausted files."""
        pressures = self._roster.pressures.described()
        exhausted = {p.controller_id for p in pressures if is_exhausted(p)}
        registered = [c.controller_id for c in self._roster.controllers]
        return [i for i in registered if i != self._own_id and i not in exhausted]


def is_exhausted(pressure: Pressure | ResourcePressure) -> bool:
    """Whether no more files can be opened. To count the open files takes one as well."""
    return pressure.resource == OPEN_FILES and pressure.used >= pressure.limit
