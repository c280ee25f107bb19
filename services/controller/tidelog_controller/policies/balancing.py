"""Plans that balance replicas and preferred leaders with the least data moved. No I/O.

"Balance" in docs/internals/protocol.md. After a plan the brokers hold equally many replicas and are
the preferred leader of equally many partitions.

All plans respect racks as placement does (`placement.py`): spread comes before balance. Within it,
no broker that could take a replica has two fewer than one that holds it. Leaders are balanced by
the order of replicas alone; replicas are exchanged only where no order is enough. What is already
balanced stays as it is.

All replicas count alike, whatever their size. For weights, change the loads of `levelling.py`.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.admin_messages import BrokerShare
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_controller.policies.levelling import Levelling, Limits
from tidelog_controller.policies.preferred_leaders import PreferredLeaders, spread_leaders
from tidelog_controller.policies.racks import RackedBroker, rack_numbers
from tidelog_controller.policies.replica_sets import ReplicaSets

# Replicas by partition; the first is the preferred leader.
Assignment = Mapping[TopicPartition, tuple[int, ...]]

TOPICS_NAMED = 10
GOLDEN_RATIO = 0x9E3779B1  # of 2^32


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """`original`, `target`: replicas before and after; the first is the preferred leader."""

    partition: TopicPartition
    original: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of planning.

    - `moves`: partitions whose replicas change, even if only in order; sorted by partition.
    - `replicas_added`: the replicas that are copied to a broker that had none.
    - `leaders_changed`: the partitions that get another preferred leader.
    - `minimum_replicas_added`: a lower bound: no plan that balances as well copies fewer. With
      uneven racks every plan may need more.
    - `brokers`: all that take part or hold replicas; sorted by id.
    """

    moves: tuple[PlannedMove, ...]
    replicas_added: int
    leaders_changed: int
    minimum_replicas_added: int
    brokers: tuple[BrokerShare, ...]


def plan_rebalance(assignment: Assignment, brokers: Sequence[RackedBroker]) -> Plan:
    """Balances the existing replicas over `brokers`.

    When a cluster grows, `brokers` include the new ones. If the old ones were balanced, only the
    new ones receive anything, and no more than they need. Replicas on brokers outside `brokers`
    stay there and count as racks of their own. Raises NOT_ENOUGH_BROKERS if `brokers` is empty.
    """
    if not brokers:
        raise TidelogError(
            ErrorCode.NOT_ENOUGH_BROKERS,
            "no broker takes part in the balance; start one, or add one that was removed",
        )
    draft = _Draft(assignment, brokers, ())
    draft.relieve_crowded_racks()
    draft.spread()
    return draft.plan()


def plan_removal(
    assignment: Assignment, brokers: Sequence[RackedBroker], removed: Collection[int]
) -> Plan:
    """Empties the brokers `removed`, live or dead, and spreads their replicas over the others.

    None of the others ends with fewer replicas than it has. So they are balanced afterwards if they
    were before, and no more than that is moved. Raises NOT_ENOUGH_BROKERS if the others cannot keep
    a replication factor.
    """
    rest = [broker for broker in brokers if broker.broker_id not in removed]
    _check_room(assignment, rest, removed)
    draft = _Draft(assignment, rest, removed)
    draft.spread(keep=True)
    return draft.plan()


def plan_replication_factor(
    assignment: Assignment,
    brokers: Sequence[RackedBroker],
    topics: Collection[str],
    replication_factor: int,
) -> Plan:
    """Changes the partitions of `topics` to this many replicas. Nothing else is moved.

    New replicas go to the brokers with the fewest, in racks without one. If replicas are removed,
    those on brokers outside `brokers` go first. Then those go that are on the brokers with the
    most, in racks with the most, and never the preferred leader. Raises INVALID_REPLICATION_FACTOR
    if there are too few brokers.
    """
    _check_factor(assignment, brokers, topics, replication_factor)
    draft = _Draft(assignment, brokers, ())
    draft.resize(topics, replication_factor)
    draft.spread(free_only=True)
    return draft.plan()


class _Draft:
    """A plan in the making.

    Brokers are numbered: first those that take part, then others that hold replicas, then stand-ins
    for brokers that are still to be found.
    """

    def __init__(
        self, assignment: Assignment, brokers: Sequence[RackedBroker], emptied: Collection[int]
    ) -> None:
        self._assignment = assignment
        self._partitions = sorted(assignment, key=_even_order)
        part = sorted(dict.fromkeys(brokers))
        self._takers = range(len(part))
        self._ids = [broker.broker_id for broker in part]
        holding = {b: None for p in self._partitions for b in assignment[p]}
        self._ids += sorted(holding.keys() - set(self._ids))
        numbers = {broker_id: number for number, broker_id in enumerate(self._ids)}
        originals = [tuple(numbers[b] for b in assignment[p]) for p in self._partitions]
        # More than the replicas that a partition has or gets.
        stand_ins = len(part) + max(map(len, originals), default=0) + 1
        self._stand_ins = range(len(self._ids), len(self._ids) + stand_ins)
        self._count = self._stand_ins.stop
        leaving = [self._ids[b] in emptied for b in range(len(self._ids))] + [True] * stand_ins
        self._emptied = [broker for broker, leaves in enumerate(leaving) if leaves]
        racks = rack_numbers(part)
        self._sets = ReplicaSets(originals, racks, self._count, leaving)
        self._loads = self._replica_loads()
        self._before = list(self._loads)
        self._leaders = [original[0] for original in originals]
        self._free_only = False
        self._without_broker = 0  # replicas that still need a broker

    def relieve_crowded_racks(self) -> None:
        """Moves replicas out of racks that hold too many of one partition."""
        for thing in range(len(self._partitions)):
            while (broker := self._sets.crowding(thing, self._loads)) is not None:
                self._displace(thing, broker)

    def resize(self, topics: Collection[str], replication_factor: int) -> None:
        for thing, partition in enumerate(self._partitions):
            if partition.topic not in topics:
                continue
            replicas = self._sets.sets[thing]
            self._sets.shrink(thing, replication_factor, self._loads)
            while len(replicas) < replication_factor:
                stand_in = self._free_stand_in(thing)
                self._sets.extend(thing, stand_in)
                self._loads[stand_in] += 1

    def spread(self, *, keep: bool = False, free_only: bool = False) -> None:
        """Levels replicas, then preferred leaders.

        - `keep`: no remaining broker gives away more than it receives.
        - `free_only`: only replicas that have to move anyway are moved.
        """
        self._free_only = free_only
        self._without_broker = sum(self._loads[b] for b in self._emptied)
        floors = list(self._loads) if keep else [0] * self._count
        limits = Limits(self._takers, self._emptied, floors, free_only)
        Levelling(self._sets, len(self._partitions), self._loads, limits).run()
        self._spread_leaders(limits, keep=keep)

    def _spread_leaders(self, limits: Limits, *, keep: bool) -> None:
        originals = self._leaders
        nobody = self._stand_ins.start
        leaders = [
            leader if leader in replicas else nobody
            for leader, replicas in zip(originals, self._sets.sets, strict=True)
        ]
        loads = _counted(leaders, self._count)
        floors = list(loads) if keep else [0] * self._count
        leading = PreferredLeaders(leaders, originals, self._sets)
        spread_leaders(
            leading,
            self._sets,
            loads,
            limits._replace(emptied=[nobody], floors=floors),
            self._loads,
            limits.floors,
        )
        self._leaders = leaders

    def plan(self) -> Plan:
        moves: list[PlannedMove] = []
        for thing, partition in enumerate(self._partitions):
            replicas = self._sets.result(thing)
            replicas.remove(self._leaders[thing])
            target = tuple(self._ids[b] for b in (self._leaders[thing], *replicas))
            if target != self._assignment[partition]:
                moves.append(PlannedMove(partition, self._assignment[partition], target))
        return Plan(
            moves=tuple(sorted(moves, key=lambda move: move.partition)),
            replicas_added=sum(len(set(m.target) - set(m.original)) for m in moves),
            leaders_changed=sum(m.target[0] != m.original[0] for m in moves),
            minimum_replicas_added=self._minimum(),
            brokers=self._shares(),
        )

    def _minimum(self) -> int:
        """The lower bound of copied replicas: those that have to leave, or that a broker lacks."""
        before, after = self._before, self._replica_loads()
        if self._free_only:
            return self._without_broker
        held = [after[b] for b in self._takers]
        if not held or max(held) - min(held) > 1:
            # Racks, or brokers that have to keep their replicas, allow no other balance.
            lacking = sum(max(0, after[b] - before[b]) for b in self._takers)
            return max(self._without_broker, lacking)
        floor, rest = divmod(sum(held), len(held))
        ceiling = floor + (rest > 0)
        lacking = sum(max(0, floor - before[b]) for b in self._takers)
        beyond = sum(max(0, before[b] - ceiling) for b in self._takers)
        return max(self._without_broker, lacking, beyond)

    def _shares(self) -> tuple[BrokerShare, ...]:
        after = self._replica_loads()
        leaders_before = Counter(self._assignment[p][0] for p in self._partitions)
        leaders_after = Counter(self._ids[leader] for leader in self._leaders)
        shares = [
            BrokerShare(b, self._before[i], after[i], leaders_before[b], leaders_after[b])
            for i, b in enumerate(self._ids)
        ]
        return tuple(sorted(shares, key=lambda share: share.broker_id))

    def _displace(self, thing: int, broker: int) -> None:
        stand_in = self._free_stand_in(thing)
        self._sets.hand_over(thing, broker, stand_in)
        self._loads[broker] -= 1
        self._loads[stand_in] += 1

    def _free_stand_in(self, thing: int) -> int:
        replicas = self._sets.sets[thing]
        return next(broker for broker in self._stand_ins if broker not in replicas)

    def _replica_loads(self) -> list[int]:
        return _counted((b for replicas in self._sets.sets for b in replicas), self._count)


def _even_order(partition: TopicPartition) -> tuple[int, TopicPartition]:
    """The order in which partitions are planned.

    Any stretch of it has about the same part of each topic's partitions, so that no topic is moved
    as a whole. Multiples of the golden ratio are evenly spread between two numbers (Knuth, The Art
    of Computer Programming, section 6.4).
    """
    place = partition.partition * GOLDEN_RATIO + zlib.crc32(partition.topic.encode())
    return place % (1 << 32), partition


def _counted(brokers: Iterable[int], count: int) -> list[int]:
    counts = Counter(brokers)
    return [counts[broker] for broker in range(count)]


def _check_room(
    assignment: Assignment, rest: Sequence[RackedBroker], removed: Collection[int]
) -> None:
    """Raises NOT_ENOUGH_BROKERS if `rest` is too small for a replication factor.

    Replicas on brokers that are neither in `rest` nor removed stay and take no room.
    """
    ids = {broker.broker_id for broker in rest}
    short: dict[str, int] = {}
    for partition, replicas in sorted(assignment.items()):
        staying = sum(b not in ids and b not in removed for b in replicas)
        if len(replicas) > len(ids) + staying and any(b in removed for b in replicas):
            short.setdefault(partition.topic, len(replicas))
    if not short:
        return
    names = ", ".join(str(broker) for broker in sorted(set(removed)))
    subject = f"broker {names}" if len(set(removed)) == 1 else f"brokers {names}"
    left = "1 broker" if len(ids) == 1 else f"{len(ids)} brokers"
    raise TidelogError(
        ErrorCode.NOT_ENOUGH_BROKERS,
        f"{subject} cannot be emptied: {left} would be left, and {_topics(short)}; add brokers "
        f"first, or lower {'its' if len(short) == 1 else 'their'} replication factor",
    )


def _check_factor(
    assignment: Assignment,
    brokers: Sequence[RackedBroker],
    topics: Collection[str],
    replication_factor: int,
) -> None:
    """Raises INVALID_REPLICATION_FACTOR if the factor exceeds the brokers.

    A replica on a broker that takes no part stays there and counts.
    """
    ids = {broker.broker_id for broker in brokers}
    if 1 <= replication_factor <= len(ids):
        return
    for partition, replicas in sorted(assignment.items()):
        elsewhere = sum(b not in ids for b in replicas)
        if partition.topic in topics and not 1 <= replication_factor <= len(ids) + elsewhere:
            brokers_there = "1 broker" if len(ids) == 1 else f"{len(ids)} brokers"
            raise TidelogError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor} is asked for and there "
                f"{'is' if len(ids) == 1 else 'are'} {brokers_there} for replicas; ask for 1 to "
                f"{len(ids)}, or add brokers first",
            )


def _topics(factors: Mapping[str, int]) -> str:
    named = [f"{topic} ({factor})" for topic, factor in list(factors.items())[:TOPICS_NAMED]]
    more = len(factors) - len(named)
    if len(factors) == 1:
        return f"topic {named[0]} has more replicas than that"
    also = f" and {more} more" if more else ""
    return f"topics {', '.join(named)}{also} have more replicas than that"
