"""Which brokers hold the replicas of a new partition. Pure functions.

Leaders rotate over the brokers. The followers of a broker's partitions are at a distance that grows
from round to round, so that all survivors share the load of a dead broker (rule
`placement-spreads-leaders`).

No two replicas of a partition are in one rack while there are enough racks. With fewer, no rack
holds two more than another that could hold one more. The balance within these rules:

- Racks of equal size, or no racks: in every round (as many partitions as brokers) each broker gets
  equally many replicas and one leader.
- Racks of different sizes: leaders stay balanced within one, and each broker's number of replicas
  differs from its share by less than three. Shares are equal unless a rack would get more than one
  replica of a partition. Of three racks, one with a single broker holds every partition of three
  replicas there, and the brokers of the largest hold the least. Spread comes before balance.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tidelog_controller.policies.racks import (
    RackedBroker,
    interleaved,
    least_used,
    rack_numbers,
    rack_sizes,
)
from tidelog_controller.policies.uneven_racks import place_unevenly

# Partitions of one topic are placed one by one over the same brokers.
CLUSTERS_REMEMBERED = 4


def start_of(topic_id: str) -> int:
    """The offset at which a topic's placement starts, so that not all topics start at one broker.

    It follows from the id alone, so that a controller that takes over in the middle of a creation
    continues in the same pattern.
    """
    return zlib.crc32(topic_id.encode())


def place(
    partition: int, replication_factor: int, brokers: Sequence[RackedBroker], start: int
) -> tuple[int, ...]:
    """Returns the replicas of one partition; the first is the preferred leader.

    `brokers`: distinct, and in the same order for all partitions of a topic. Raises `ValueError` if
    they are fewer than the replication factor.
    """
    count = len(brokers)
    if not 1 <= replication_factor <= count:
        raise ValueError(
            f"cannot place {replication_factor} replicas on {count} brokers; "
            f"the replication factor has to be between 1 and {count}"
        )
    layout = _layout(tuple(brokers))
    if len(set(layout.sizes)) > 1:
        return place_unevenly(partition, replication_factor, layout.order, start % count)
    return _place_evenly(partition, replication_factor, layout, start)


def place_each(
    partitions: Iterable[int], replication_factor: int, brokers: Sequence[RackedBroker], start: int
) -> tuple[tuple[int, ...], ...]:
    """Returns the replicas of each partition, as `place` finds them."""
    return tuple(place(p, replication_factor, brokers, start) for p in partitions)


class _Layout(NamedTuple):
    """The brokers and racks of a placement.

    - `order`: the brokers in the order in which they lead.
    - `racks`: the rack number of each broker in `order`.
    - `sizes`: brokers by rack.
    """

    order: tuple[RackedBroker, ...]
    racks: list[int]
    sizes: list[int]


@lru_cache(maxsize=CLUSTERS_REMEMBERED)
def _layout(brokers: tuple[RackedBroker, ...]) -> _Layout:
    order = interleaved(brokers)
    racks = rack_numbers(order)
    return _Layout(tuple(order), racks, rack_sizes(racks))


def _place_evenly(
    partition: int, replication_factor: int, layout: _Layout, start: int
) -> tuple[int, ...]:
    """Places one partition over racks of equal size.

    In one round all followers are at the same distances from their leaders, and so every broker
    gets equally many.
    """
    order, racks, sizes = layout
    count = len(order)
    first = (partition + start) % count
    # Racks alternate in the order, so a multiple of their number leads back to the same rack.
    distances = [d for d in range(1, count) if len(sizes) < replication_factor or d % len(sizes)]
    # Rounds are counted from the topic's first partition and not from the first broker. So a round
    # has one distance, and every broker gets equally many replicas of it.
    round_number = partition // count + start // count
    chosen = [first]
    used = [0] * len(sizes)
    used[racks[first]] = 1
    for follower in range(replication_factor - 1):
        free = [size - taken for size, taken in zip(sizes, used, strict=True)]
        fewest = least_used(used, free)
        begin = (round_number + follower) % len(distances)
        for distance in distances[begin:] + distances[:begin]:
            broker = (first + distance) % count
            if broker not in chosen and used[racks[broker]] == fewest:
                chosen.append(broker)
                used[racks[broker]] += 1
                break
    return tuple(order[broker].broker_id for broker in chosen)
