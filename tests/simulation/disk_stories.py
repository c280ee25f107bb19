"""Stories about disks."""

from __future__ import annotations

import random
from collections.abc import Callable

from simulation.faults import FIRST_FAULT_MS, LAST_FAULT_MS, Cluster, Fault


def _long_full_disk(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A disk is full for much longer than a follower may lag, while other brokers take writes."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 14_000)
    room = rng.randint(0, 500)
    return [Fault(at_ms, "disk_full", (cluster.broker(rng), room), rng.randint(9_000, 14_000))]


def _long_hang(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Syncs of one broker do not return for so long that its leaderships have to move."""
    at_ms = rng.randint(FIRST_FAULT_MS, FIRST_FAULT_MS + 10_000)
    what = rng.choice(("syncs", "all"))
    del cluster
    return [Fault(at_ms, "disk_hang", ("leader", what), rng.randint(24_000, 32_000))]


def _two_damages(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A leader and a follower are damaged at different batches; together they have all."""
    del cluster
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 9_000)
    return [Fault(at_ms, "two_damages", (rng.randrange(1_000),), 8_500)]


def _dropped_pages(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A machine reboots some time after a failed fsync, when all others have just crashed.

    What its broker claims to have synced is all that there is.
    """
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 14_000)
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != cluster.loser]
    end_ms = at_ms + rng.randint(3_000, 7_000)
    return [
        Fault(at_ms, "failed_fsync", (f"broker-{cluster.loser}", rng.randint(1, 3)), 2_000),
        *(Fault(end_ms, "crash_broker", (other,), rng.randint(3_500, 5_000)) for other in others),
        Fault(end_ms + rng.randint(50, 800), "reboot", (f"broker-{cluster.loser}",), 400),
    ]


DISK_STORIES: tuple[Callable[[random.Random, Cluster], list[Fault]], ...] = (
    _long_full_disk,
    _long_hang,
    _two_damages,
    _dropped_pages,
)
