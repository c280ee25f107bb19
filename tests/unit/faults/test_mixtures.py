"""In a mixture each kind has its effect, whichever brokers the others have struck before. The
test applies the kinds to a small cluster in every order and with every choice of brokers."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import pytest

from faults.catalogue import KINDS
from faults.plan import ALONE_ONLY, Step, make_plan, may_mix

BROKERS = frozenset({1, 2, 3})
SEEDS = range(1_000)
# The number of runs, and the seconds of each.
LENGTHS = [(1, 60), (1, 120), (3, 120), (1, 240), (3, 360), (1, 900)]

LEADER, FOLLOWER = "a leader", "a follower"
PAIR, ALL = "a follower and its leader", "all brokers"
# The broker that each kind strikes; the other kinds strike no broker.
STRIKES = {
    "kill_leader": LEADER,
    "stop_leader": LEADER,
    "pause_leader": LEADER,
    "pause_follower": FOLLOWER,
    "restart_all_brokers": ALL,
    "cut_off_leader": LEADER,
    "cut_follower": PAIR,
    "cut_leader_from_followers": LEADER,
    "cut_one_way": LEADER,
    "cut_leader_from_etcd": LEADER,
    "drop_packets": LEADER,
    "cut_off_clients": LEADER,
    "hang_answers": LEADER,
    "delay_services": LEADER,
    "fill_disk": LEADER,
    "flip_bit": FOLLOWER,
    "skew_clock": LEADER,
}
# These kinds are measured by packets between the broker and a live one,
# or by records that are committed together with one.
WITH_ANOTHER = {
    "cut_leader_from_followers",
    "cut_one_way",
    "fill_disk",
    "skew_clock",
    "flip_bit",
}
CONTROLLERS = {"kill_controller", "stop_controller", "pause_controller"}
MEMBERS = {"kill_etcd_member", "kill_etcd_leader", "kill_all_etcd"}


class Struck(NamedTuple):
    kind: str
    brokers: frozenset[int]


def choices(kind: str, free: frozenset[int]) -> Iterator[frozenset[int]]:
    """The brokers that it may strike, out of those that nothing else strikes."""
    strikes = STRIKES.get(kind)
    if strikes is None:
        yield frozenset()
    elif strikes == ALL:
        if free == BROKERS:
            yield free
    elif strikes == PAIR:
        yield from (frozenset(pair) for pair in permutations(free, 2))
    elif strikes == LEADER or len(free) > 1:
        yield from (frozenset({broker}) for broker in free)


def outcomes(kinds: Sequence[str], struck: tuple[Struck, ...] = ()) -> Iterator[tuple[Struck, ...]]:
    """Every sequence of strikes in this order; shorter where one finds no broker."""
    if not kinds:
        yield struck
        return
    free = BROKERS.difference(*(one.brokers for one in struck))
    found = list(choices(kinds[0], free))
    if not found:
        yield struck
    for brokers in found:
        yield from outcomes(kinds[1:], (*struck, Struck(kinds[0], brokers)))


def what_lacks(kinds: Sequence[str]) -> str:
    """Empty if each kind finds a broker to strike, and one with which it has its effect."""
    if len(CONTROLLERS.intersection(kinds)) > 1:
        return "of two controllers both are struck"
    if len(MEMBERS.intersection(kinds)) > 1:
        return "of three etcd members two are struck"
    for order in permutations(kinds):
        for struck in outcomes(order):
            if len(struck) < len(kinds):
                return f"{order[len(struck)]} finds no process after {struck}"
            unharmed = BROKERS.difference(*(one.brokers for one in struck))
            for one in struck:
                if one.kind in WITH_ANOTHER and not unharmed:
                    return f"{one.kind} has no other beside it in {struck}"
    return ""


def mixtures(plan: tuple[tuple[Step, ...], ...]) -> set[tuple[str, ...]]:
    return {tuple(step.kinds) for steps in plan for step in steps if step.name == "mixed"}


@pytest.mark.parametrize(("runs", "seconds"), LENGTHS)
def test_each_kind_of_a_mixture_has_its_effect_for_every_seed(runs: int, seconds: int) -> None:
    drawn = set[tuple[str, ...]]()
    for seed in SEEDS:
        drawn |= mixtures(make_plan(KINDS, runs=runs, seconds=seconds, seed=seed).runs)

    assert drawn
    assert {kinds: lacks for kinds in drawn if (lacks := what_lacks(kinds))} == {}


def test_each_kind_of_a_requested_mixture_has_its_effect() -> None:
    drawn = set[tuple[str, ...]]()
    for seed in SEEDS:
        plan = make_plan(KINDS, runs=1, seconds=200, seed=seed, only="mixed")
        drawn |= mixtures(plan.runs)

    assert len({kind for kinds in drawn for kind in kinds}) == len(KINDS) - len(ALONE_ONLY)
    assert {kinds: lacks for kinds in drawn if (lacks := what_lacks(kinds))} == {}


@pytest.mark.parametrize(
    "kinds",
    [
        # Drawn like this once: no follower was left.
        ("cut_follower", "kill_leader", "pause_leader"),
        ("pause_follower", "stop_leader", "cut_off_leader"),
        # Below the min ISR no record reaches the disk, and no clock stamp.
        ("fill_disk", "kill_leader", "pause_leader"),
        ("skew_clock", "kill_leader", "stop_leader"),
        # No broker is left to cut it off from.
        ("cut_leader_from_followers", "kill_leader", "stop_leader"),
        ("kill_controller", "pause_controller"),
        ("kill_etcd_leader", "kill_etcd_member"),
    ],
)
def test_kinds_that_need_the_same_brokers_are_rejected_by_the_cluster_and_do_not_mix(
    kinds: tuple[str, ...],
) -> None:
    assert what_lacks(kinds)
    assert not may_mix(kinds)


@pytest.mark.parametrize(
    "kinds",
    [
        ("kill_leader", "pause_leader", "hang_answers"),
        ("cut_follower", "kill_leader", "kill_controller"),
        ("fill_disk", "pause_follower", "kill_etcd_leader"),
    ],
)
def test_kinds_with_enough_brokers_mix(kinds: tuple[str, ...]) -> None:
    assert not what_lacks(kinds)
    assert may_mix(kinds)
