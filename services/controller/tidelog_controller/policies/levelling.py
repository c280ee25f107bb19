"""Spreading things evenly over brokers by handing over as few of them as possible. Pure.

What is spread are the replicas of partitions (`replica_sets.py`) and then the preferred
leaders among them (`preferred_leaders.py`). Both are a flow: as long as one broker has two more
than another, and things can be handed on from the one to the other, over others if need be, one
is. When that is no longer so, no other spread is more even. Brokers are small numbers here, as
are things.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple, Protocol

# A path from a broker to one that has less: what is handed over, from whom, to whom.
Path = list[tuple[int, int, int]]


class Kind(enum.IntEnum):
    """What it means that a thing is handed over. The first two cost nothing and are tried first;
    of the others, to takers that hold as much, the first."""

    RETURN = 0  # the taker held it before the plan
    FREE = 1  # the giver did not, or has to lose it
    FOLLOWED = 2  # the giver held it, and somebody else led it
    LED = 3


FOR_NOTHING = (Kind.RETURN, Kind.FREE)
FOR_A_COPY = (Kind.FOLLOWED, Kind.LED)


class Spread(Protocol):
    """Who holds what."""

    def fits(self, thing: int, giver: int, taker: int) -> bool:
        """Whether the giver holds it, and the taker may hold it instead."""
        ...

    def returns(self, thing: int, giver: int, taker: int) -> bool:
        """Whether it fits and is a RETURN."""
        ...

    def hand_over(self, thing: int, giver: int, taker: int) -> None: ...

    def holders(self, thing: int) -> Sequence[int]: ...

    def kinds(self, thing: int, giver: int) -> Sequence[Kind]:
        """What it may be that the giver hands it over."""
        ...


class Offers:
    """For each giver and taker the next thing that fits.

    Each thing is looked at once for each pair, and again only after it has changed hands: that
    keeps 300,000 replicas on 30 brokers a matter of seconds."""

    def __init__(self, fits: Callable[[int, int, int], bool], brokers: int) -> None:
        self._fits = fits
        self._things: list[list[int]] = [[] for _ in range(brokers)]
        self._next = [[0] * brokers for _ in range(brokers)]

    def add(self, thing: int, giver: int) -> None:
        """Also to be called anew for all its holders when any of them has changed."""
        self._things[giver].append(thing)

    def peek(self, giver: int, taker: int) -> int | None:
        things, fits = self._things[giver], self._fits
        position = self._next[giver][taker]
        while position < len(things):
            if fits(things[position], giver, taker):
                self._next[giver][taker] = position
                return things[position]
            position += 1
        self._next[giver][taker] = position
        return None

    def begin_at(self, giver: int, part: Fraction) -> None:
        """`part`: of what the giver has, what is to come last."""
        things = self._things[giver]
        first = int(len(things) * part)
        self._things[giver] = things[first:] + things[:first]


class Limits(NamedTuple):
    """`takers`: brokers that may be given something. `emptied`: brokers that are to hold
    nothing. `floors`: by broker, what each holds at least; others give nothing. `free_only`:
    only what costs nothing is handed over."""

    takers: Sequence[int]
    emptied: Sequence[int]
    floors: Sequence[int]
    free_only: bool = False


class Levelling:
    """`loads`: what each broker holds; kept up to date."""

    def __init__(self, spread: Spread, things: int, loads: list[int], limits: Limits) -> None:
        self.loads = loads
        self._spread = spread
        self._limits = limits
        self._offers = {
            kind: Offers(spread.returns if kind is Kind.RETURN else spread.fits, len(loads))
            for kind in Kind
        }
        for thing in range(things):
            self._offer(thing)
        # Each begins elsewhere. Else all would give the same takers replicas of the same
        # partitions, and when one of these fails, its load would be the others' alone.
        for turn, giver in enumerate(limits.takers):
            for offers in self._offers.values():
                offers.begin_at(giver, Fraction(turn, len(limits.takers)))

    def run(self) -> None:
        for broker in self._limits.emptied:
            while self.loads[broker] > 0:
                if self._give(broker, tuple(Kind), all_of_it=True) is None:
                    raise ValueError(f"what broker {broker} holds fits nowhere else")
        # By all of them, before anybody is given a copy that it may get, or lose, for nothing.
        self._level(FOR_NOTHING)
        if not self._limits.free_only:
            self._level(tuple(Kind))

    def _level(self, kinds: Sequence[Kind]) -> None:
        """Each turn brings two loads closer together, so there is an end. A broker that can give
        nothing is done for good: nobody that it reaches has two less, so nothing that is
        handed over later leads there."""
        heap = [(-self.loads[broker], broker) for broker in self._limits.takers]
        heapq.heapify(heap)
        while heap:
            load, broker = heapq.heappop(heap)
            if -load != self.loads[broker] or -load <= self._limits.floors[broker]:
                continue
            taker = self._give(broker, kinds)
            if taker is not None:
                heapq.heappush(heap, (-self.loads[broker], broker))
                heapq.heappush(heap, (-self.loads[taker], taker))

    def _offer(self, thing: int) -> None:
        for broker in self._spread.holders(thing):
            for kind in self._spread.kinds(thing, broker):
                if kind in FOR_NOTHING or not self._limits.free_only:
                    self._offers[kind].add(thing, broker)

    def _give(self, giver: int, kinds: Sequence[Kind], *, all_of_it: bool = False) -> int | None:
        """Hands one thing over; who holds one more for it. None: there is nothing to be gained.
        `all_of_it`: whatever the others hold."""
        loads = self.loads
        takers = sorted(self._limits.takers, key=lambda b: (loads[b], b))
        if not all_of_it:
            takers = [b for b in takers if loads[b] <= loads[giver] - 2]
        if not takers:
            return None
        path = self._direct(giver, takers, FOR_NOTHING)
        if path is None and kinds != FOR_NOTHING:
            path = self._copied(giver, takers)
        path = path or self._cheapest_path(giver, takers, kinds)
        if path is None or not self._carry_out(path):
            return None
        return path[-1][2]

    def _copied(self, giver: int, takers: Sequence[int]) -> Path | None:
        """To those with the least, whatever it is: others may need nothing."""
        for _, alike in groupby(takers, key=self.loads.__getitem__):
            path = self._direct(giver, list(alike), FOR_A_COPY)
            if path is not None:
                return path
        return None

    def _direct(self, giver: int, takers: Sequence[int], kinds: Iterable[Kind]) -> Path | None:
        for kind in kinds:
            for taker in takers:
                thing = self._offers[kind].peek(giver, taker)
                if thing is not None:
                    return [(thing, giver, taker)]
        return None

    def _cheapest_path(self, giver: int, ends: Sequence[int], kinds: Iterable[Kind]) -> Path | None:
        """By what it costs, then by length, then by what the end holds."""
        reached: set[int] = set()
        queue: list[tuple[int, int, int, int, Path]] = [(0, 0, 0, giver, [])]
        while queue:
            cost, length, _, broker, path = heapq.heappop(queue)
            if broker in reached:
                continue
            reached.add(broker)
            if broker in ends and path:
                return path
            for taker in self._limits.takers:
                if taker in reached:
                    continue
                for kind in kinds:
                    thing = self._offers[kind].peek(broker, taker)
                    if thing is not None:
                        further = cost + (kind not in FOR_NOTHING)
                        way = [*path, (thing, broker, taker)]
                        heapq.heappush(queue, (further, length + 1, self.loads[taker], taker, way))
                        break
        return None

    def _carry_out(self, path: Path) -> bool:
        """From the end on, so that each step is one that fits. Where racks are fewer than
        replicas, two steps of one partition may not fit together: then all is as it was."""
        done: Path = []
        for thing, giver, taker in reversed(path):
            if not self._spread.fits(thing, giver, taker):
                for undone, former, latter in reversed(done):
                    self._hand_over(undone, latter, former)
                return False
            self._hand_over(thing, giver, taker)
            done.append((thing, giver, taker))
        return True

    def _hand_over(self, thing: int, giver: int, taker: int) -> None:
        self._spread.hand_over(thing, giver, taker)
        self.loads[giver] -= 1
        self.loads[taker] += 1
        self._offer(thing)
