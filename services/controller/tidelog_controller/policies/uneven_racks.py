"""Placement over racks of different sizes. Pure functions.

"Placement" in docs/internals/protocol.md. No formula of the partition's number alone is both spread
and balanced here. So the partitions of a topic are placed in sequence. Each takes the racks and
brokers that are furthest behind their share of what was placed before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from tidelog_controller.policies.racks import RackedBroker, least_used, rack_numbers, rack_sizes

# Few topics are created at a time, and each requests its partitions in order.
TOPICS_REMEMBERED = 4


def place_unevenly(
    partition: int, replication_factor: int, brokers: tuple[RackedBroker, ...], first_leader: int
) -> tuple[int, ...]:
    """Returns the replicas of `partition`; also places and caches all partitions before it.

    - `brokers`: in the order in which they lead.
    - `first_leader`: the index in `brokers` of the leader of partition 0.
    """
    return _sequence(brokers, replication_factor, first_leader).replicas(partition)


def rack_shares(sizes: Sequence[int], replication_factor: int) -> list[Fraction]:
    """How many replicas of a partition each rack holds on average.

    Brokers hold as equally many as possible with replicas in separate racks. `sizes`: brokers by
    rack, together at least the replication factor. A rack with more than its part of the brokers
    holds one replica of every partition and never a second one. Its brokers then hold less than
    others, and cannot hold more.
    """
    # Every rack holds at least `level` replicas of a partition, or one on each of its brokers.
    level = 0
    while sum(min(size, level + 1) for size in sizes) < replication_factor:
        level += 1
    lowest = [Fraction(min(size, level)) for size in sizes]
    highest = [Fraction(min(size, level + 1)) for size in sizes]
    bounds = sorted(
        {bound / size for size, low, high in zip(sizes, lowest, highest, strict=True)
         for bound in (low, high)}
    )  # fmt: skip

    def shares(per_broker: Fraction) -> list[Fraction]:
        return [
            min(max(per_broker * size, low), high)
            for size, low, high in zip(sizes, lowest, highest, strict=True)
        ]

    # Between two neighbouring bounds the sum grows linearly.
    below = bounds[0]
    for above in bounds:
        if sum(shares(above)) >= replication_factor:
            break
        below = above
    least, most = sum(shares(below)), sum(shares(above))
    if least == most:
        return shares(above)
    return shares(below + (above - below) * (replication_factor - least) / (most - least))


@lru_cache(maxsize=TOPICS_REMEMBERED)
def _sequence(
    brokers: tuple[RackedBroker, ...], replication_factor: int, first_leader: int
) -> _Sequence:
    return _Sequence(brokers, replication_factor, first_leader)


class _Sequence:
    """The partitions of a topic from the first on, as far as they were requested."""

    def __init__(
        self, brokers: tuple[RackedBroker, ...], replication_factor: int, first_leader: int
    ) -> None:
        self._ids = [broker.broker_id for broker in brokers]
        self._racks = rack_numbers(brokers)
        self._sizes = rack_sizes(self._racks)
        self._members: list[list[int]] = [[] for _ in self._sizes]
        for index, rack in enumerate(self._racks):
            self._members[rack].append(index)
        self._factor = replication_factor
        self._first_leader = first_leader
        shares = rack_shares(self._sizes, replication_factor)
        # Shares are whole numbers: `unit` is one replica.
        self._unit = math.lcm(*(share.denominator for share in shares))
        self._shares = [int(share * self._unit) for share in shares]
        # How far each rack is behind its share, in units.
        self._behind = [0] * len(self._sizes)
        self._loads = [0] * len(brokers)
        # How often each broker follows each other one: the followers of a dead broker take its
        # load.
        self._followed = [[0] * len(brokers) for _ in brokers]
        self._placed: list[tuple[int, ...]] = []

    def replicas(self, partition: int) -> tuple[int, ...]:
        while len(self._placed) <= partition:
            self._place_next()
        return self._placed[partition]

    def _place_next(self) -> None:
        # Each round begins one broker further. Otherwise a broker that is behind at the same point
        # of every round would follow the same leader every time.
        partition, count = len(self._placed), len(self._ids)
        leader = (self._first_leader + partition + partition // count) % count
        for rack, share in enumerate(self._shares):
            self._behind[rack] += share
        used = [0] * len(self._sizes)
        free = list(self._sizes)
        chosen: list[int] = []

        def take(broker: int) -> None:
            rack = self._racks[broker]
            used[rack] += 1
            free[rack] -= 1
            self._behind[rack] -= self._unit
            self._loads[broker] += 1
            chosen.append(broker)

        take(leader)
        while len(chosen) < self._factor:
            take(self._next_follower(leader, chosen, used, free))
        for follower in chosen[1:]:
            self._followed[leader][follower] += 1
        self._placed.append(tuple(self._ids[broker] for broker in chosen))

    def _next_follower(
        self, leader: int, chosen: list[int], used: list[int], free: list[int]
    ) -> int:
        """Returns the next follower of this leader.

        Of the brokers that are about furthest behind, it is the one that has followed this leader
        least often. So all brokers take part of the leader's load when it dies.
        """
        fewest = least_used(used, free)
        racks = [r for r in range(len(free)) if free[r] and used[r] == fewest]
        furthest = max(self._behind[rack] for rack in racks)
        candidates: list[int] = []
        for rack in racks:
            if self._behind[rack] > furthest - self._unit:
                members = [broker for broker in self._members[rack] if broker not in chosen]
                least = min(self._loads[broker] for broker in members)
                candidates += [b for b in members if self._loads[b] <= least + 1]
        followed = self._followed[leader]
        return min(
            candidates,
            key=lambda b: (followed[b], self._loads[b], self._distance(leader, b)),
        )

    def _distance(self, leader: int, broker: int) -> int:
        return (broker - leader) % len(self._ids)
