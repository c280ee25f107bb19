"""Clusters to plan for, and properties of plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from tidelog.model import TopicPartition
from tidelog_controller.policies.balancing import Plan
from tidelog_controller.policies.placement import place
from tidelog_controller.policies.racks import RackedBroker

# Clusters differ much in size, and machines in speed.

Replicas = dict[TopicPartition, tuple[int, ...]]


class Case(NamedTuple):
    assignment: Replicas
    brokers: list[RackedBroker]

    @property
    def ids(self) -> list[int]:
        return [broker.broker_id for broker in self.brokers]


def without_racks(count: int) -> list[RackedBroker]:
    return [RackedBroker(10 + b) for b in range(count)]


def in_racks(sizes: Sequence[int]) -> list[RackedBroker]:
    racks = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    return [RackedBroker(10 + b, f"rack {rack}") for b, rack in enumerate(racks)]


@st.composite
def cases(
    draw: st.DrawFn,
    racks: st.SearchStrategy[list[int]] | None = None,
    factors: st.SearchStrategy[int] | None = None,
    most: int = 30,
    least_brokers: int = 1,
) -> Case:
    """Any replicas on any brokers.

    - `racks`: brokers by rack; None: the brokers have no racks.
    - `factors`: replication factors of one topic; None: two topics of random factors.
    """
    if racks is None:
        brokers = without_racks(draw(st.integers(least_brokers, 7)))
    else:
        brokers = in_racks(draw(racks))
    ids = [broker.broker_id for broker in brokers]
    assignment: Replicas = {}
    for topic in ("a", "b") if factors is None else ("a",):
        factor = min(draw(factors if factors is not None else st.integers(1, 4)), len(ids))
        for partition in range(draw(st.integers(0, most))):
            # The same ones in half of the cases, so that loads are uneven.
            chosen = (ids if draw(st.booleans()) else draw(st.permutations(ids)))[:factor]
            assignment[TopicPartition(topic, partition)] = tuple(chosen)
    return Case(assignment, brokers)


def placed(brokers: list[RackedBroker], partitions: int, factor: int) -> Replicas:
    return {TopicPartition("a", p): place(p, factor, brokers, 0) for p in range(partitions)}


def applied(assignment: Mapping[TopicPartition, tuple[int, ...]], plan: Plan) -> Replicas:
    return {**assignment, **{move.partition: move.target for move in plan.moves}}


def loads(assignment: Replicas, ids: Collection[int]) -> list[int]:
    counts = Counter(b for replicas in assignment.values() for b in replicas)
    return [counts[b] for b in ids]


def leaders(assignment: Replicas, ids: Collection[int]) -> list[int]:
    counts = Counter(replicas[0] for replicas in assignment.values())
    return [counts[b] for b in ids]


def unevenness(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)


def crowded(assignment: Replicas, brokers: Sequence[RackedBroker]) -> list[TopicPartition]:
    """Partitions of which one rack holds at least two replicas more than another rack that has a
    free broker.
    """
    rack_of = {b.broker_id: b.rack or str(b.broker_id) for b in brokers}
    found = []
    for partition, replicas in assignment.items():
        used = Counter(rack_of[b] for b in replicas if b in rack_of)
        free = [rack for b, rack in rack_of.items() if b not in replicas]
        if used and any(max(used.values()) >= used[rack] + 2 for rack in free):
            found.append(partition)
    return found


def check_summary(assignment: Replicas, plan: Plan) -> None:
    """The summary of a plan matches its moves."""
    after = applied(assignment, plan)
    assert all(move.original == assignment[move.partition] for move in plan.moves)
    assert all(move.original != move.target for move in plan.moves)
    assert list(plan.moves) == sorted(plan.moves, key=lambda move: move.partition)
    added = sum(len(set(after[p]) - set(assignment[p])) for p in assignment)
    assert plan.replicas_added == added >= plan.minimum_replicas_added
    assert plan.leaders_changed == sum(after[p][0] != assignment[p][0] for p in assignment)
    ids = [share.broker_id for share in plan.brokers]
    assert [s.replicas_before for s in plan.brokers] == loads(assignment, ids)
    assert [s.replicas_after for s in plan.brokers] == loads(after, ids)
    assert [s.leaders_before for s in plan.brokers] == leaders(assignment, ids)
    assert [s.leaders_after for s in plan.brokers] == leaders(after, ids)
