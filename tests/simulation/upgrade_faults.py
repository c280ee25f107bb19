"""A rolling upgrade to a release with one more feature level, whose level is raised meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.faults import Fault
from simulation.metadata_faults import End
from simulation.processes import Service
from tidelog.errors import TidelogError
from tidelog.feature_levels import SUPPORTED, LevelRange

if TYPE_CHECKING:
    from simulation.world import World

NEXT_RELEASE = LevelRange(SUPPORTED.oldest, SUPPORTED.newest + 1)
# The time from one restart to the next one.
BETWEEN_RESTARTS_S = (0.3, 1.5)
# How long the late process runs beside all others of the next release. A raise is rejected then.
BESIDE_S = (3.0, 5.0)
# How long the late process is away before it comes back: up to twice its lease.
AWAY_S = (0.0, 6.0)
RAISE_AGAIN_S = 0.3


class UpgradeFaults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self.begin: dict[str, Callable[[Fault, random.Random], End]] = {
            "rolling_upgrade": self._rolling_upgrade,
        }

    def heal(self) -> None:
        """From now on, every process starts with the next release if an upgrade has begun."""
        self._is_over = True
        if self._tasks:
            for service in self._world.services():
                service.levels = NEXT_RELEASE

    async def over(self) -> None:
        await asyncio.gather(*self._tasks)

    def _rolling_upgrade(self, fault: Fault, rng: random.Random) -> End:
        """Restarts all processes but one with the next release. An operator raises the level as
        soon as that is accepted. The late process is gone for a while, so that nothing registered
        names its release; it comes back with the former one, and gets the next one at the end."""
        late = self._world.service(str(fault.args[0]))
        client = self._world.client("upgrade")
        self._tasks += [client.spawn(self._restart(late, rng)), client.spawn(self._raise())]

        def end() -> None:
            late.levels = NEXT_RELEASE
            late.kill()

        return end

    async def _restart(self, late: Service, rng: random.Random) -> None:
        for service in self._world.services():
            if service is not late:
                service.levels = NEXT_RELEASE
                service.kill()
                await asyncio.sleep(rng.uniform(*BETWEEN_RESTARTS_S))
        await asyncio.sleep(rng.uniform(*BESIDE_S))
        late.hold_down()
        late.kill()
        await asyncio.sleep(rng.uniform(*AWAY_S))
        late.release()

    async def _raise(self) -> None:
        async with self._world.client("upgrade").admin() as admin:
            while not self._is_over:
                try:
                    await admin.raise_feature_level(NEXT_RELEASE.newest)
                    return
                except TidelogError:
                    await asyncio.sleep(RAISE_AGAIN_S)
