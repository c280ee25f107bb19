"""How an invariant is judged that holds over time: it is looked at again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.world import World


async def watch(world: World, look: Callable[[], None], interval_ms: int) -> None:
    """Until cancelled; a `Violation` that `look` raises ends the world's run."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            look()
        except Violation as violation:
            world.fail(violation)
            return
