"""Brokers and the racks they stand in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class RackedBroker(NamedTuple):
    """`rack`: empty where the broker names none; it then stands in a rack of its own, since
    nothing says that it shares one."""

    broker_id: int
    rack: str = ""


def rack_numbers(brokers: Sequence[RackedBroker]) -> list[int]:
    """For each broker the number of its rack. Racks are numbered from 0 on in the order in
    which they first appear."""
    numbers: dict[str | int, int] = {}
    return [numbers.setdefault(b.rack or b.broker_id, len(numbers)) for b in brokers]


def rack_sizes(numbers: Iterable[int]) -> list[int]:
    """How many brokers stand in each rack, by its number."""
    sizes: list[int] = []
    for number in numbers:
        sizes += [0] * (number + 1 - len(sizes))
        sizes[number] += 1
    return sizes


def interleaved(brokers: Sequence[RackedBroker]) -> list[RackedBroker]:
    """The brokers in an order in which each rack comes as often as its size says. Racks of
    equal size take turns; where every broker has its own, the order stays."""
    numbers = rack_numbers(brokers)
    sizes = rack_sizes(numbers)
    seen = [0] * len(sizes)
    positions: list[float] = []
    for number in numbers:
        positions.append((seen[number] + 0.5) / sizes[number])
        seen[number] += 1
    ranks = sorted(range(len(brokers)), key=lambda i: (positions[i], numbers[i]))
    return [brokers[i] for i in ranks]


def least_used(used: Sequence[int], free: Sequence[int]) -> int:
    """How many replicas of a partition the rack holds that the next one goes to: the fewest
    among those racks that have a broker without one. So no rack gets a second replica before
    each has its first, a third before each that can has its second, and so on.

    `used`: replicas of the partition by rack; `free`: brokers without one, by rack."""
    return min(used[rack] for rack, brokers in enumerate(free) if brokers)
