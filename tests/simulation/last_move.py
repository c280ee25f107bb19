"""Checks a move off a broker that dies after the world has healed.

The move waits for no replica that leaves (rule `reassignment-done-when-in-sync`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Set

from simulation.invariants import Invariants
from simulation.liveness import LOOK_INTERVAL_S
from simulation.store_rules import Written
from simulation.violation import Violation
from simulation.world import World

# The broker has to be missed first, at worst by the end of its lease.
MOVE_TIME_MS = 15_000


async def require_moved_off_the_dead(
    world: World, invariants: Invariants, damaged: Set[int]
) -> None:
    """Raises `Violation` if the move takes too long. At the end the dead broker is back.

    - `damaged`: brokers on whose disks bits were flipped. What they hold may prove unreadable
      when it is copied, and then a dead broker is one too many.
    """
    rng = world.rng("last move")
    found = [
        (written, broker_id)
        for written in invariants.store.partitions.values()
        for broker_id in written.state.replicas
        # Without another replica nothing could be moved.
        if len(written.state.replicas) > 1
        if damaged.isdisjoint(written.state.replicas) and _target(world, written, broker_id)
    ]
    if not found:
        return
    written, dead = rng.choice(found)
    target = _target(world, written, dead)
    broker = world.brokers[dead]
    broker.hold_down()
    broker.kill()
    world.mover.want(written.name, target)
    deadline_ms = world.now_ms + MOVE_TIME_MS
    try:
        while True:
            now = next(w for w in invariants.store.partitions.values() if w.name == written.name)
            if now.state.replicas == target:
                return
            if world.now_ms >= deadline_ms:
                raise Violation(
                    "move_waits_for_the_dead",
                    f"broker {dead} is dead, and to leave; after {MOVE_TIME_MS} ms {now}",
                    partition=str(written.name),
                )
            await asyncio.sleep(LOOK_INTERVAL_S)
    finally:
        broker.release()


def _target(world: World, written: Written, dead: int) -> tuple[int, ...]:
    """Returns as many other brokers as possible, up to as many as the partition has replicas.

    It is empty if they are too few for its min ISR.
    """
    others = [b for b in (*written.state.replicas, *world.brokers) if b != dead]
    target = tuple(dict.fromkeys(others))[: len(written.state.replicas)]
    return target if len(target) >= written.state.min_isr else ()
