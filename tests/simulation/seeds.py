"""Which seeds a run consists of: a number of them, a list, or those whose plan has a fault of
some kind."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from itertools import count, islice
from typing import NamedTuple

from simulation.plans import draw_plan
from simulation.world import Settings

# Of a kind that stories alone bring about, one seed in many has one.
MAX_SEEDS_SEARCHED = 200_000


class SeedChoice(NamedTuple):
    """`how_many` from the first on, or the `listed` ones."""

    how_many: int = 0
    listed: tuple[int, ...] = ()

    def chosen(self, first: int, with_fault: Collection[str] = ()) -> Sequence[int]:
        """Listed seeds that have no such fault are left out; of others the search goes past
        them, so that there are `how_many`."""
        if self.listed:
            return [seed for seed in self.listed if has_fault(seed, with_fault)]
        if not with_fault:
            return range(first, first + self.how_many)
        return list(islice(_with_fault(first, with_fault), self.how_many))


def _with_fault(first: int, kinds: Collection[str]) -> Iterator[int]:
    for seed in islice(count(first), MAX_SEEDS_SEARCHED):
        if has_fault(seed, kinds):
            yield seed


def has_fault(seed: int, kinds: Collection[str]) -> bool:
    """Whether the plan that the seed draws has a fault of any of these kinds, or no kind is
    asked for."""
    return not kinds or any(fault.kind in kinds for fault in draw_plan(seed, Settings()))


def parse_seeds(text: str) -> SeedChoice:
    """Reads "200", how many, or "3,17,40-60", a list."""
    try:
        if text.isdecimal():
            choice = SeedChoice(how_many=int(text))
        else:
            parts = [part.strip() for part in text.split(",") if part.strip()]
            choice = SeedChoice(listed=tuple(seed for part in parts for seed in _range(part)))
    except ValueError:
        choice = SeedChoice()
    if choice.how_many < 1 and not choice.listed:
        raise argparse.ArgumentTypeError(
            f"{text!r} names no seeds; write how many, as in 200, or a list, as in 3,17,40-60"
        )
    return choice


def _range(part: str) -> range:
    low, dash, high = part.partition("-")
    return range(int(low), int(high if dash else low) + 1)
