"""Checks invariants over time, by sampling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.world import World


async def watch(world: World, look: Callable[[], None], interval_ms: int) -> None:
    """Calls `look` until cancelled; a `Violation` that it raises ends the world's run."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            look()
        except Violation as violation:
            world.fail(violation)
            return
