"""Brokers and their racks. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class RackedBroker(NamedTuple):
    """A broker and its rack.

    `rack`: empty if the broker names none. It then counts as a rack of its own, because nothing
    says that it shares one.
    """

    broker_id: int
    rack: str = ""


def rack_numbers(brokers: Sequence[RackedBroker]) -> list[int]:
    """Returns the rack number of each broker. Racks are numbered from 0 in order of appearance."""
    numbers: dict[str | int, int] = {}
    return [numbers.setdefault(b.rack or b.broker_id, len(numbers)) for b in brokers]


def rack_sizes(numbers: Iterable[int]) -> list[int]:
    """Returns the number of brokers in each rack, by rack number."""
    sizes: list[int] = []
    for number in numbers:
        sizes += [0] * (number + 1 - len(sizes))
        sizes[number] += 1
    return sizes


def interleaved(brokers: Sequence[RackedBroker]) -> list[RackedBroker]:
    """Returns the brokers in an order that spreads each rack's brokers evenly over it.

    Racks of equal size alternate. If every broker has its own rack, the order stays.
    """
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
    """How many of a partition's replicas the rack of the next replica holds.

    It is the smallest number among racks that have a broker without one. So no rack gets a second
    replica before each has its first, no third before each that can has its second, and so on.

    - `used`: replicas of the partition by rack.
    - `free`: brokers without one, by rack.
    """
    return min(used[rack] for rack, brokers in enumerate(free) if brokers)
