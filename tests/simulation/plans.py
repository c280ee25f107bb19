"""The plan of faults that a seed draws.

It stays within what the design tolerates: at most one machine loses data, unless all reboot at
once.
"""

from __future__ import annotations

import random
from typing import Protocol

from simulation.faults import FIRST_FAULT_MS, KINDS, LAST_END_MS, Cluster, Fault, draw_fault
from simulation.move_stories import MOVE_STORIES
from simulation.stories import STORIES, story_name

MIN_FAULTS = 6
MAX_FAULTS = 12
# The share of kinds that a seed uses, so that rare kinds meet more often.
USED_KINDS = 0.6
# All machines at once: what is lost then is legitimately lost, and has to be marked.
REBOOT_ALL_SHARE = 0.15
# The share of seeds with a story beside their faults; 160 seeds have each of the stories five or
# six times.
STORY_SHARE = 0.9
# The share of seeds in which partitions move meanwhile.
MOVE_SHARE = 0.5
# The share of seeds in which the active controller's watch is late while members return. The fault
# is drawn last, and is no story, so that the other faults of a seed do not depend on it.
LATE_WATCH_SHARE = 0.15
LATE_WATCH = "late_watch"
# The share of seeds with a rolling upgrade. It restarts every process, beside which other faults
# show less.
UPGRADE_SHARE = 0.05
UPGRADE = "rolling_upgrade"
# Likewise faults that take a partition for themselves, each drawn last with this share.
LAST_SHARE = 0.15
LAST_DRAWN = ("damaged_lone_leader", "unanswered_produce")


# Kinds with which a plan continues whose faults had too little effect: they begin soon, are short,
# and lose no data.
MORE_KINDS = ("crash_broker", "pause_broker", "crash_active_controller", "cut_from_brokers")
MORE_AFTER_MS = 500
MORE_LASTS_MS = (300, 1_500)


class Size(Protocol):
    """The size of a world."""

    @property
    def brokers(self) -> int: ...

    @property
    def controllers(self) -> int: ...


def draw_plan(seed: int, size: Size) -> list[Fault]:
    """Returns the faults in the order in which they begin."""
    return sorted(_draw(seed, size)[0])


def story_of(seed: int, size: Size) -> str:
    """Returns the name of the story that the seed's plan has, or an empty string."""
    return _draw(seed, size)[1]


def _draw(seed: int, size: Size) -> tuple[list[Fault], str]:
    rng = random.Random(f"{seed}/plan")
    cluster = Cluster(size.brokers, size.controllers, loser=rng.randint(1, size.brokers))
    names = [name for name, kind in KINDS.items() if kind.weight]
    used = sorted(rng.sample(names, round(len(names) * USED_KINDS)), key=names.index)
    weights = [KINDS[name].weight for name in used]
    chosen = rng.choices(used, weights, k=rng.randint(MIN_FAULTS, MAX_FAULTS))
    if rng.random() < REBOOT_ALL_SHARE:
        chosen.append("reboot_all")
    plan = [draw_fault(name, rng, cluster) for name in chosen]
    name = ""
    if rng.random() < STORY_SHARE:
        # In turn, so that consecutive seeds have all of them.
        story = STORIES[seed % len(STORIES)]
        name = story_name(story)
        plan += story(rng, cluster)
    if rng.random() < MOVE_SHARE:
        plan += MOVE_STORIES[seed % len(MOVE_STORIES)](rng, cluster)
    if rng.random() < LATE_WATCH_SHARE:
        plan.append(_draw_long(LATE_WATCH, rng, cluster))
    if rng.random() < UPGRADE_SHARE:
        plan.append(_draw_long(UPGRADE, rng, cluster))
    plan += [_draw_long(k, rng, cluster) for k in LAST_DRAWN if rng.random() < LAST_SHARE]
    return plan, name


def _draw_long(name: str, rng: random.Random, cluster: Cluster) -> Fault:
    """Returns a fault that has its whole duration."""
    kind = KINDS[name]
    duration_ms = kind.durations_ms[0]
    at_ms = rng.randint(FIRST_FAULT_MS, LAST_END_MS - duration_ms)
    return Fault(at_ms, name, kind.args(rng, cluster), duration_ms)


def draw_one_more(rng: random.Random, size: Size, now_ms: int) -> Fault:
    cluster = Cluster(size.brokers, size.controllers, loser=1)
    kind = rng.choice(MORE_KINDS)
    at_ms = now_ms + MORE_AFTER_MS
    return Fault(at_ms, kind, KINDS[kind].args(rng, cluster), rng.randint(*MORE_LASTS_MS))
