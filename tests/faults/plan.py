"""The plan of injections: steps, each with faults that begin together or one after another. Pure.

A run has every kind alone, the well-known stories, every kind in a mixture, and then mixtures that
a seed draws until the time is up. In a run that is too short for all of that, mixtures come first,
and their faults last a few seconds."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

from faults.catalogue import BROKERS, KINDS

# Between two faults: the cluster is intact again, and writes are as usual.
SETTLE_S = 2.0
# An estimate of the recovery time, where nothing is known yet.
WHOLE_S = 5.0
# Between two occurrences of one fault, as in "bounced five times", from when the cluster is intact
# again.
BOUNCE_PAUSE_S = 1.0
# The recovery time after one of these.
BOUNCE_WHOLE_S = 4.0
MIN_MIXED, MAX_MIXED = 2, 3
MIXED = "mixed"
# None of these can be combined with another one of them: no broker would be left that may lead.
# Each comes alone or beside a harmless fault. Two of the harmless ones strike a leader; their
# measurement would be lost when all brokers end.
HARMLESS = ("delay_clients", "delay_services", "skew_clock")
BESIDE = {
    "flip_bit": HARMLESS,
    "kill_all_etcd": HARMLESS,
    "restart_all_brokers": ("delay_clients",),
}
ALONE_ONLY = frozenset(BESIDE)
AFTER_HARMLESS_S = 1.0
# A mixture has at most one of each group: a second one would remove what the first is measured by.
ONE_AT_A_TIME = (
    frozenset({"kill_controller", "stop_controller", "pause_controller"}),
    frozenset({"kill_etcd_member", "kill_etcd_leader"}),
)


# Three runs of this length have time for every kind alone.
SHORT_RUN_S = 360.0


class Pace(NamedTuple):
    """`most_s`: the longest duration of a kind, unless it needs longer for its effect.
    `spread_s`: the time within which the faults of a mixture begin."""

    most_s: float
    spread_s: float

    def lasts_s(self, kind: str) -> float:
        """The duration in a mixture."""
        return max(KINDS[kind].least_s, min(KINDS[kind].seconds, self.most_s))


# All of etcd is down for a minute only where that fault comes alone and there is time.
USUAL = Pace(10.0, 4.0)
SHORT = Pace(3.0, 2.0)


class Fault(NamedTuple):
    """`at_s`: after its step begins. It lasts `seconds`, and occurs `times` times."""

    kind: str
    at_s: float
    seconds: float
    times: int = 1

    @property
    def end_s(self) -> float:
        """The expected end."""
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
    def kinds(self) -> list[str]:
        return [fault.kind for fault in self.faults]

    @property
    def seconds(self) -> float:
        """Until all faults have ended."""
        return max(fault.end_s for fault in self.faults)

    @property
    def expected_s(self) -> float:
        return self.seconds + WHOLE_S + SETTLE_S

    @property
    def is_single(self) -> bool:
        """A single fault: the gap around it is attributed to it."""
        return len(self.faults) == 1


def alone(kind: str, pace: Pace) -> Step:
    seconds = pace.lasts_s(kind) if pace is SHORT else KINDS[kind].seconds
    return Step(kind, (Fault(kind, 0.0, seconds),))


BOUNCES = 5
CELL_S = 2.0


def _cell(kind: str, times: int) -> Step:
    """One cell of the matrix {clean stop, hard kill} × {once, five times} × {leader,
    controller}."""
    name = f"matrix_{kind}_{'once' if times == 1 else f'{times}_times'}"
    return Step(name, (Fault(kind, 0.0, max(CELL_S, KINDS[kind].least_s), times),))


MATRIX = tuple(
    _cell(f"{how}_{whom}", times)
    for how in ("stop", "kill")
    for times in (1, BOUNCES)
    for whom in ("leader", "controller")
)
# A partition, a pause and clients that are cut off, all with 100 ms of latency.
ROUND_TRIP = Step(
    "round_trip",
    (
        Fault("delay_clients", 0.0, 24.0),
        Fault("cut_leader_from_followers", 2.0, 6.0),
        Fault("pause_leader", 10.0, 5.0),
        Fault("cut_off_clients", 18.0, 4.0),
    ),
)
# A leader that is cut off from its followers continues to write records that they never get, until
# it is deposed. It comes back with that tail while other leaders die.
TRUNCATION = Step(
    "truncation",
    (
        Fault("cut_leader_from_followers", 0.0, 6.0),
        Fault("kill_leader", 8.0, 1.0),
        Fault("cut_leader_from_followers", 11.0, 6.0),
        Fault("kill_leader", 19.0, 1.0, 2),
    ),
)
# A follower lags, within its time, and so is in sync; then the leader dies, and the follower may
# lead. Records that were acknowledged or read before they were committed are lost.
LAGGING_FOLLOWER = Step(
    "lagging_follower",
    (Fault("pause_follower", 0.0, 1.6), Fault("kill_leader", 1.0, 3.0)),
)
# A follower is silent while the store, which must record its removal from the ISR, is down. A
# leader that commits without the follower loses records when it dies while the store still lists
# the follower.
UNTOLD_SHRINK = Step(
    "unreported_shrink",
    (
        Fault("kill_all_etcd", 0.0, 12.0),
        Fault("pause_follower", 1.0, 9.0),
        Fault("kill_leader", 8.0, 3.0),
    ),
)
# This step comes first, alone.
UNPRECEDED = "kill_leader"
STORIES = (*MATRIX, ROUND_TRIP, TRUNCATION, LAGGING_FOLLOWER, UNTOLD_SHRINK)


class Plan(NamedTuple):
    """`runs`: the steps of each run. `no_time`: the names of steps that did not fit."""

    runs: tuple[tuple[Step, ...], ...]
    no_time: tuple[str, ...]

    @property
    def kinds(self) -> list[str]:
        """The kinds that occur."""
        present = {kind for steps in self.runs for step in steps for kind in step.kinds}
        return [kind for kind in KINDS if kind in present]


def make_plan(
    possible: Collection[str], *, runs: int, seconds: float, seed: int, only: str = ""
) -> Plan:
    """Makes a plan of the kinds that are `possible`.

    `seconds`: the length of one run.
    `only`: the name of a kind, a story or "mixed", which is repeated.
    A story omits impossible kinds, unless it has no other. Raises `ValueError` for a name that is
    unknown or impossible."""
    rng = random.Random(seed)
    kinds = [kind for kind in KINDS if kind in possible]
    is_short = not only and seconds < SHORT_RUN_S
    pace = SHORT if is_short else USUAL
    left = [seconds] * runs
    chosen: list[list[Step]] = [[] for _ in range(runs)]
    missed: list[Step] = []
    once = _only(kinds, only) if only else _once(kinds, rng, pace)
    if sum(step.expected_s for step in once) <= sum(left):
        # All of them fit if the long ones are not the last.
        once.sort(key=lambda step: -step.expected_s)
    for step in once:
        # The run with the most time left; the first of those.
        run = max(range(runs), key=lambda number: (left[number], -number))
        if left[run] < step.expected_s:
            missed.append(step)
            continue
        left[run] -= step.expected_s
        chosen[run].append(step)
    for run in range(runs):
        for step in _repeated(kinds, only, rng, left[run], pace):
            chosen[run].append(step)
        if not only:
            rng.shuffle(chosen[run])
            # After recent deaths of brokers, another one is not detected as fast as this step
            # requires.
            chosen[run].sort(key=lambda step: step.name != UNPRECEDED)
    plan = Plan(tuple(tuple(steps) for steps in chosen), ())
    return plan._replace(no_time=_no_time(missed, plan.kinds if is_short else ()))


def _no_time(missed: Sequence[Step], enough: Collection[str]) -> tuple[str, ...]:
    """`enough`: the kinds that need not occur in each manner, because they occur in one."""
    names = [
        step.name if step.name != MIXED else f"{MIXED}: {', '.join(step.kinds)}"
        for step in missed
        if not enough or (step.name != MIXED and step.name not in enough)
    ]
    return tuple(names)


def _once(kinds: Sequence[str], rng: random.Random, pace: Pace) -> list[Step]:
    """Steps that occur once. In a short run mixtures come first, because they have the most kinds;
    otherwise long steps come first, so that they fit, and shorter ones in an order of the seed."""
    named = [alone(kind, pace) for kind in kinds] + _stories(kinds)
    rng.shuffle(named)
    mixtures = mixtures_of_all(kinds, rng, pace)
    if pace is SHORT:
        return [*mixtures, *named]
    named.sort(key=lambda step: step.name not in KINDS or step.seconds < 20)
    return [*named, *mixtures]


def _only(kinds: Sequence[str], only: str) -> list[Step]:
    named = [alone(kind, USUAL) for kind in kinds] + _stories(kinds)
    requested = [step for step in named if step.name == only]
    if not requested and only != MIXED:
        known = ", ".join([*(step.name for step in named), MIXED])
        raise ValueError(f"{only!r} cannot be injected here; what can: {known}")
    return requested


def _stories(kinds: Collection[str]) -> list[Step]:
    return [step for story in STORIES if (step := _possible(story, kinds)) is not None]


def _repeated(
    kinds: Sequence[str], only: str, rng: random.Random, seconds: float, pace: Pace
) -> list[Step]:
    """Fills the rest of a run."""
    requested = _only(kinds, only) if only else []
    steps: list[Step] = []
    while True:
        step = requested[0] if requested else _mixed(_drawn(kinds, rng), rng, pace)
        seconds -= step.expected_s
        if seconds < 0:
            return steps
        steps.append(step)


def _possible(story: Step, kinds: Collection[str]) -> Step | None:
    faults = tuple(fault for fault in story.faults if fault.kind in kinds)
    return Step(story.name, faults) if faults else None


def may_mix(kinds: Sequence[str]) -> bool:
    """Whether each of them has its effect beside the others, whichever brokers they strike.

    There must be enough brokers for all strikes and for those that must stay unharmed, and no fault
    may remove what another is measured by."""
    if len(set(kinds)) < len(kinds):
        return False
    if any(len(family.intersection(kinds)) > 1 for family in ONE_AT_A_TIME):
        return False
    for kind in ALONE_ONLY.intersection(kinds):
        if len(kinds) > MIN_MIXED or not set(kinds) <= {kind, *BESIDE[kind]}:
            return False
    strikes = sum(KINDS[kind].strikes for kind in kinds)
    return strikes + max((KINDS[kind].spares for kind in kinds), default=0) <= BROKERS


def mixtures_of_all(kinds: Sequence[str], rng: random.Random, pace: Pace) -> list[Step]:
    """Mixtures that together have each kind at least once, unless no possible kind may be combined
    with it.

    Those with the most kinds come first."""
    beside = _beside_harmless(kinds, rng)
    groups = [[other, kind] for kind, other in beside.items()]
    mixable = [kind for kind in kinds if kind not in ALONE_ONLY]
    dealt = _dealt([kind for kind in mixable if kind not in beside.values()], rng)
    groups += [_filled(group, mixable, MIN_MIXED, rng) for group in dealt]
    groups.sort(key=lambda group: -len(group))
    return [_mixed(group, rng, pace) for group in groups if len(group) >= MIN_MIXED]


def _beside_harmless(kinds: Sequence[str], rng: random.Random) -> dict[str, str]:
    """For each kind that otherwise comes alone, a harmless kind to combine it with; each harmless
    kind is used once before one repeats."""
    beside: dict[str, str] = {}
    for kind in sorted(ALONE_ONLY.intersection(kinds), key=lambda kind: len(BESIDE[kind])):
        harmless = [other for other in BESIDE[kind] if other in kinds]
        fresh = [other for other in harmless if other not in beside.values()]
        if harmless:
            beside[kind] = rng.choice(fresh or harmless)
    return beside


def _dealt(kinds: Sequence[str], rng: random.Random) -> list[list[str]]:
    """Groups of at most MAX_MIXED; kinds that few others may join come first, so that they need no
    group of their own in the end."""
    groups: list[list[str]] = []
    for kind in sorted(rng.sample(kinds, len(kinds)), key=_room_beside):
        fits = (g for g in groups if len(g) < MAX_MIXED and may_mix([*g, kind]))
        group = next(fits, None)
        if group is None:
            groups.append([kind])
        else:
            group.append(kind)
    return groups


def _room_beside(kind: str) -> int:
    return sum(may_mix([kind, other]) for other in KINDS)


def _drawn(kinds: Sequence[str], rng: random.Random) -> list[str]:
    mixable = [kind for kind in kinds if kind not in ALONE_ONLY]
    return _filled([], mixable, rng.randint(MIN_MIXED, MAX_MIXED), rng)


def _filled(
    group: Sequence[str], kinds: Sequence[str], count: int, rng: random.Random
) -> list[str]:
    """Up to `count` of them."""
    filled = list(group)
    for kind in rng.sample(kinds, len(kinds)):
        if len(filled) < count and may_mix([*filled, kind]):
            filled.append(kind)
    return filled


def _mixed(kinds: Sequence[str], rng: random.Random, pace: Pace) -> Step:
    """The harmless fault is already in force when the other one begins."""
    is_pair = not ALONE_ONLY.isdisjoint(kinds)
    faults = []
    for kind in kinds:
        at_s = round(rng.uniform(0, pace.spread_s), 1)
        if is_pair:
            at_s = AFTER_HARMLESS_S if kind in ALONE_ONLY else 0.0
        faults.append(Fault(kind, at_s, pace.lasts_s(kind)))
    return Step(MIXED, tuple(sorted(faults, key=lambda fault: fault.at_s)))
