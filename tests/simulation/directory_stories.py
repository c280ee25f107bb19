"""Stories of data directories: in each, a directory could pass for another one."""

from __future__ import annotations

import random
from collections.abc import Callable

from simulation.faults import FIRST_FAULT_MS, LAST_FAULT_MS, Cluster, Fault


def _crashes(rng: random.Random, brokers: list[str], at_ms: int) -> list[Fault]:
    return [Fault(at_ms, "crash_broker", (b,), rng.randint(3_000, 6_000)) for b in brokers]


def _second_process_while_the_first_is_paused(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """A second process starts on an empty directory while the first one is paused.

    The lease of the first one ends meanwhile, so that there is no registration. If the second
    one were admitted, it would be in sync. It stops, and the first one returns, alone of the
    brokers that were last in sync.
    """
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 18_000)
    number = rng.randint(1, cluster.brokers)
    broker = f"broker-{number}"
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != number]
    lasts_ms = rng.randint(9_000, 13_000)
    end_ms = at_ms + lasts_ms
    paused_ms = at_ms + rng.randint(100, 1_000)
    return [
        Fault(at_ms, "second_process", (broker,), lasts_ms),
        Fault(paused_ms, "pause_broker", (broker,), end_ms - paused_ms + rng.randint(0, 500)),
        *_crashes(rng, others, end_ms - rng.randint(300, 1_500)),
    ]


def _copy_while_the_original_is_paused(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """The copy registers, is in sync and may lead.

    It stops, and the original returns, alone of the brokers that were last in sync.
    """
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 20_000)
    loser = f"broker-{cluster.loser}"
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != cluster.loser]
    lasts_ms = rng.randint(9_000, 14_000)
    end_ms = at_ms + lasts_ms
    return [
        Fault(at_ms, "copied_directory", (loser,), lasts_ms),
        Fault(at_ms + 200, "pause_broker", (loser,), lasts_ms + rng.randint(0, 500)),
        *(
            Fault(
                end_ms - rng.randint(300, 2_500),
                "crash_broker",
                (other,),
                rng.randint(3_000, 6_000),
            )
            for other in others
        ),
    ]


def _copy_beside_the_original(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """Both run, for longer than a lease; then the copy runs alone."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 16_000)
    loser = f"broker-{cluster.loser}"
    return [
        Fault(at_ms, "copied_directory", (loser,), rng.randint(10_000, 14_000)),
        Fault(
            at_ms + rng.randint(5_000, 7_000), "crash_broker", (loser,), rng.randint(4_000, 6_000)
        ),
    ]


def _restored_when_others_are_away(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """What is restored would be the only data if it counted as intact."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 14_000)
    loser = f"broker-{cluster.loser}"
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != cluster.loser]
    lasts_ms = rng.randint(3_000, 8_000)
    end_ms = at_ms + lasts_ms
    faults = [Fault(at_ms, "restored_directory", (loser,), lasts_ms)]
    if rng.random() < 0.5:
        stops_ms = at_ms + rng.randint(200, lasts_ms - 1_500)
        faults.append(Fault(stops_ms, "shut_down", (loser,), lasts_ms))
    return [*faults, *_crashes(rng, others, end_ms - rng.randint(100, 600))]


def _old_directory_comes_back(rng: random.Random, cluster: Cluster) -> list[Fault]:
    """The directory holds what was committed before it was replaced, and lacks what followed."""
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_FAULT_MS - 16_000)
    loser = f"broker-{cluster.loser}"
    others = [f"broker-{n}" for n in range(1, cluster.brokers + 1) if n != cluster.loser]
    lasts_ms = rng.randint(7_000, 11_000)
    end_ms = at_ms + lasts_ms
    return [
        Fault(at_ms, "swapped_directory", (loser,), lasts_ms),
        *(
            Fault(
                end_ms - rng.randint(100, 600), "crash_broker", (other,), rng.randint(3_000, 5_000)
            )
            for other in others
        ),
    ]


DIRECTORY_STORIES: tuple[Callable[[random.Random, Cluster], list[Fault]], ...] = (
    _second_process_while_the_first_is_paused,
    _copy_while_the_original_is_paused,
    _copy_beside_the_original,
    _restored_when_others_are_away,
    _old_directory_comes_back,
)
