"""What is injected when: steps, each of faults that begin together or one after another. Pure.

Every kind alone, the stories that the field knows by name, and then, until the time is up,
mixtures that a seed draws.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

from faults.catalogue import KINDS

# Between two faults: the cluster is whole again, and writes as ever.
SETTLE_S = 2.0
# What becoming whole takes, where nothing is known yet.
WHOLE_S = 5.0
# Between two of the same fault, as in "bounced five times": from when the cluster is whole again.
BOUNCE_PAUSE_S = 1.0
# What that takes after one of these.
BOUNCE_WHOLE_S = 4.0
MIN_MIXED, MAX_MIXED = 2, 3
MIXED_SPREAD_S = 6.0
# A mixture of these may leave nobody that may lead, for as long as they last: they come alone.
ALONE_ONLY = frozenset({"kill_all_etcd", "restart_all_brokers", "flip_bit"})
# Of each of these a mixture has one: a second would take away by what the first is measured.
ONE_AT_A_TIME = (
    frozenset({"kill_controller", "stop_controller", "pause_controller"}),
    frozenset({"kill_etcd_member", "kill_etcd_leader"}),
)


class Fault(NamedTuple):
    """`at_s` after its step begins; it lasts `seconds`, and comes `times` times."""

    kind: str
    at_s: float
    seconds: float
    times: int = 1

    @property
    def end_s(self) -> float:
        """As it is expected."""
        between_s = BOUNCE_WHOLE_S + BOUNCE_PAUSE_S
        return self.at_s + self.times * self.seconds + (self.times - 1) * between_s

    def __str__(self) -> str:
        times = f" {self.times} times" if self.times > 1 else ""
        return f"{self.kind}{times} at {self.at_s:g} s for {self.seconds:g} s"


class Step(NamedTuple):
    """`name`: of a kind, a story, or a mixture."""

    name: str
    faults: tuple[Fault, ...]

    @property
    def seconds(self) -> float:
        """Until all have ended."""
        return max(fault.end_s for fault in self.faults)

    @property
    def expected_s(self) -> float:
        return self.seconds + WHOLE_S + SETTLE_S

    @property
    def is_single(self) -> bool:
        """One fault alone: the gap around it is on its account."""
        return len(self.faults) == 1


def alone(kind: str) -> Step:
    return Step(kind, (Fault(kind, 0.0, KINDS[kind].seconds),))


def _cell(kind: str, times: int) -> Step:
    """Of the matrix {clean stop, hard kill} × {once, five times} × {leader, controller}."""
    name = f"matrix_{kind}_{'once' if times == 1 else f'{times}_times'}"
    return Step(name, (Fault(kind, 0.0, 2.0, times),))


BOUNCES = 5
MATRIX = tuple(
    _cell(f"{how}_{whom}", times)
    for how in ("stop", "kill")
    for times in (1, BOUNCES)
    for whom in ("leader", "controller")
)
# A partition, a pause and clients that are cut off, all under 100 ms of latency.
ROUND_TRIP = Step(
    "round_trip",
    (
        Fault("delay_clients", 0.0, 24.0),
        Fault("cut_leader_from_followers", 2.0, 6.0),
        Fault("pause_leader", 10.0, 5.0),
        Fault("cut_off_clients", 18.0, 4.0),
    ),
)
# Each deposed leader comes back with a tail that its successor has not.
TRUNCATION = Step(
    "truncation",
    (
        Fault("pause_leader", 0.0, 6.0),
        Fault("kill_leader", 8.0, 1.0),
        Fault("pause_leader", 11.0, 6.0),
        Fault("kill_leader", 19.0, 1.0, 2),
    ),
)
# A follower lags within its time, and so is in sync; then the leader dies, and the follower may
# lead: what was acknowledged or read before it was committed is gone.
LAGGING_FOLLOWER = Step(
    "lagging_follower",
    (Fault("pause_follower", 0.0, 1.6), Fault("kill_leader", 1.0, 3.0)),
)
# A follower is silent while the store, which is to hear that it leaves the ISR, is down: whoever
# commits without it nevertheless loses that when the leader dies and the store still has it.
UNTOLD_SHRINK = Step(
    "untold_shrink",
    (
        Fault("kill_all_etcd", 0.0, 12.0),
        Fault("pause_follower", 1.0, 9.0),
        Fault("kill_leader", 8.0, 3.0),
    ),
)
STORIES = (*MATRIX, ROUND_TRIP, TRUNCATION, LAGGING_FOLLOWER, UNTOLD_SHRINK)


class Plan(NamedTuple):
    """`runs`: the steps of each run. `no_time`: the names of steps that did not fit."""

    runs: tuple[tuple[Step, ...], ...]
    no_time: tuple[str, ...]

    @property
    def kinds(self) -> list[str]:
        """Those that occur."""
        present = {fault.kind for steps in self.runs for step in steps for fault in step.faults}
        return [kind for kind in KINDS if kind in present]


def make_plan(
    possible: Collection[str], *, runs: int, seconds: float, seed: int, only: str = ""
) -> Plan:
    """Of the kinds that are `possible`. `seconds`: of one run. `only`: the name of a kind, a
    story or "mixed", again and again. A story goes on without the kinds that are not possible,
    unless it has no other. Raises `ValueError` for a name that is not known or not possible."""
    rng = random.Random(seed)
    kinds = [kind for kind in KINDS if kind in possible]
    left = [seconds] * runs
    chosen: list[list[Step]] = [[] for _ in range(runs)]
    no_time: list[str] = []
    for step in _once(kinds, only, rng):
        # Where most time is left; the first of those.
        run = max(range(runs), key=lambda number: (left[number], -number))
        if left[run] < step.expected_s:
            no_time.append(step.name)
            continue
        left[run] -= step.expected_s
        chosen[run].append(step)
    for run in range(runs):
        for step in _repeated(kinds, only, rng, left[run]):
            chosen[run].append(step)
        if not only:
            rng.shuffle(chosen[run])
    return Plan(tuple(tuple(steps) for steps in chosen), tuple(no_time))


def _once(kinds: Sequence[str], only: str, rng: random.Random) -> list[Step]:
    if only == "mixed":
        return []
    named = [alone(kind) for kind in kinds]
    named += [step for story in STORIES if (step := _possible(story, kinds)) is not None]
    if not only:
        # The long ones first, so that they fit; shorter ones in an order of the seed.
        rng.shuffle(named)
        return sorted(named, key=lambda step: step.name not in KINDS or step.seconds < 20)
    wanted = [step for step in named if step.name == only]
    if not wanted:
        known = ", ".join([*(step.name for step in named), "mixed"])
        raise ValueError(f"{only!r} cannot be injected here; what can: {known}")
    return wanted


def _repeated(kinds: Sequence[str], only: str, rng: random.Random, seconds: float) -> list[Step]:
    """Fills what is left of a run."""
    steps: list[Step] = []
    while True:
        step = _once(kinds, only, rng)[0] if only and only != "mixed" else _mixed(kinds, rng)
        seconds -= step.expected_s
        if seconds < 0:
            return steps
        steps.append(step)


def _possible(story: Step, kinds: Collection[str]) -> Step | None:
    faults = tuple(fault for fault in story.faults if fault.kind in kinds)
    return Step(story.name, faults) if faults else None


def _mixed(kinds: Sequence[str], rng: random.Random) -> Step:
    mixable = [kind for kind in kinds if kind not in ALONE_ONLY]
    count = rng.randint(MIN_MIXED, MAX_MIXED)
    drawn: list[str] = []
    for kind in rng.sample(mixable, len(mixable)):
        alike = next((family for family in ONE_AT_A_TIME if kind in family), frozenset())
        if len(drawn) < count and alike.isdisjoint(drawn):
            drawn.append(kind)
    faults = [
        Fault(kind, round(rng.uniform(0, MIXED_SPREAD_S), 1), KINDS[kind].seconds) for kind in drawn
    ]
    return Step("mixed", tuple(sorted(faults, key=lambda fault: fault.at_s)))
