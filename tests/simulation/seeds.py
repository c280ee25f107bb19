"""The seeds of a run: a number, a list, or those whose plan has some fault or story."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from itertools import count, islice
from typing import NamedTuple

from simulation.plans import draw_plan, story_of
from simulation.world import Settings

# A kind of fault that only stories have is in one seed of many.
MAX_SEEDS_SEARCHED = 200_000


class PlanFilter(NamedTuple):
    """Selects plans with one of these kinds of faults, and with one of these stories.

    Empty: any.
    """

    faults: Collection[str] = ()
    stories: Collection[str] = ()

    def passes(self, seed: int) -> bool:
        size = Settings()
        if self.stories and story_of(seed, size) not in self.stories:
            return False
        return not self.faults or any(f.kind in self.faults for f in draw_plan(seed, size))


ANY_PLAN = PlanFilter()


class SeedChoice(NamedTuple):
    """The first `how_many` seeds, or the `listed` ones."""

    how_many: int = 0
    listed: tuple[int, ...] = ()

    def chosen(self, first: int, plan_filter: PlanFilter = ANY_PLAN) -> Sequence[int]:
        """Returns the seeds to run.

        Listed seeds with another plan are left out. Otherwise the search skips them until there
        are `how_many`.
        """
        if self.listed:
            return [seed for seed in self.listed if plan_filter.passes(seed)]
        if not any(plan_filter):
            return range(first, first + self.how_many)
        searched = islice(count(first), MAX_SEEDS_SEARCHED)
        return list(islice(filter(plan_filter.passes, searched), self.how_many))


def parse_seeds(text: str) -> SeedChoice:
    """Parses "200", a number of seeds, or "3,17,40-60", a list."""
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
