"""Power failures of one machine."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from simulation.metadata_faults import End
from simulation.processes import BrokerProcess

if TYPE_CHECKING:
    from simulation.world import World


def power_off(world: World, broker: BrokerProcess, rng: random.Random) -> End:
    """Cuts the power of a machine, and returns a function that restores it."""
    host = world.network.host(broker.host)
    broker.hold_down()
    broker.kill(noticed=False)
    host.up = False
    lost = broker.machine.disk.power_failure(rng)
    world.trace("rebooted", host=broker.host, lost=lost)
    if lost:
        world.data_losses.machine_lost(broker.machine_id)

    def up() -> None:
        host.up = True
        broker.machine.booted()
        broker.release()

    return up
