"""Spreads things evenly over brokers with as few transfers as possible. No I/O.

The things are the replicas of partitions (`replica_sets.py`), and then the preferred leaders among
them (`preferred_leaders.py`). Both are a flow problem. While one broker has two more than another
and a path of transfers connects them, one thing is transferred along it. The path may lead over
other brokers. When no such path is left, no other spread is more even. Brokers and things are
small numbers here.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple, Protocol

# A path to a broker that has less: for each step the thing, its giver and its taker.
Path = list[tuple[int, int, int]]


class Kind(enum.IntEnum):
    """What the transfer of a thing means.

    The first two cost nothing and are tried first. FOLLOWED comes before LED if the takers hold
    equally many.
    """

    RETURN = 0  # the taker held it before the plan
    FREE = 1  # the giver did not hold it before the plan, or has to lose it
    FOLLOWED = 2  # the giver held it, and another broker led it
    LED = 3


WITHOUT_COPY = (Kind.RETURN, Kind.FREE)
WITH_COPY = (Kind.FOLLOWED, Kind.LED)


class Spread(Protocol):
    """Which broker holds what."""

    def fits(self, thing: int, giver: int, taker: int) -> bool:
        """Whether the giver holds it and the taker may hold it instead."""
        ...

    def returns(self, thing: int, giver: int, taker: int) -> bool:
        """Whether it fits and is a RETURN."""
        ...

    def hand_over(self, thing: int, giver: int, taker: int) -> None: ...

    def holders(self, thing: int) -> Sequence[int]: ...

    def kinds(self, thing: int, giver: int) -> Sequence[Kind]:
        """The kinds that a transfer away from the giver may be."""
        ...


class Offers:
    """For each giver and taker the next thing that fits.

    Each pair checks each thing once, and again only after it has changed hands. That keeps the time
    for 300,000 replicas on 30 brokers at a few seconds.
    """

    def __init__(self, fits: Callable[[int, int, int], bool], brokers: int) -> None:
        self._fits = fits
        self._things: list[list[int]] = [[] for _ in range(brokers)]
        self._next = [[0] * brokers for _ in range(brokers)]

    def add(self, thing: int, giver: int) -> None:
        """Offers the thing. After any of its holders has changed, add it again for all of them."""
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
        """`part`: the fraction of the giver's things that comes last."""
        things = self._things[giver]
        first = int(len(things) * part)
        self._things[giver] = things[first:] + things[:first]


class Limits(NamedTuple):
    """Limits of a levelling.

    - `participants`: brokers that may receive things.
    - `emptied`: brokers that have to end with nothing.
    - `floors`: by broker, the least number that it keeps; a broker at its floor gives nothing.
    - `free_only`: only transfers that cost nothing are made.
    """

    participants: Sequence[int]
    emptied: Sequence[int]
    floors: Sequence[int]
    free_only: bool = False


class Levelling:
    """`loads`: the number of things of each broker; updated in place."""

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
        # Each giver begins at another thing. Otherwise all would give the same takers replicas of
        # the same partitions, and if one of these failed, its load would fall on the others alone.
        for turn, giver in enumerate(limits.participants):
            for offers in self._offers.values():
                offers.begin_at(giver, Fraction(turn, len(limits.participants)))

    def run(self) -> None:
        for broker in self._limits.emptied:
            while self.loads[broker] > 0:
                if self._give(broker, tuple(Kind), all_of_it=True) is None:
                    raise ValueError(f"what broker {broker} holds fits nowhere else")
        # All brokers first make the free transfers: a copy might turn out to be unnecessary.
        self._level(WITHOUT_COPY)
        if not self._limits.free_only:
            self._level(tuple(Kind))

    def _level(self, kinds: Sequence[Kind]) -> None:
        """Levels the loads by transfers of these kinds.

        It ends, because each transfer brings two loads closer together. A broker that can give
        nothing is finished: no broker that it reaches has two less, and no later transfer leads to
        one.
        """
        heap = [(-self.loads[broker], broker) for broker in self._limits.participants]
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
                if kind in WITHOUT_COPY or not self._limits.free_only:
                    self._offers[kind].add(thing, broker)

    def _give(self, giver: int, kinds: Sequence[Kind], *, all_of_it: bool = False) -> int | None:
        """Transfers one thing and returns the broker whose load grew. None: nothing can be gained.

        `all_of_it`: to any taker, whatever it holds.
        """
        loads = self.loads
        participants = sorted(self._limits.participants, key=lambda b: (loads[b], b))
        if not all_of_it:
            participants = [b for b in participants if loads[b] <= loads[giver] - 2]
        if not participants:
            return None
        path = self._direct(giver, participants, WITHOUT_COPY)
        if path is None and kinds != WITHOUT_COPY:
            path = self._copied(giver, participants)
        path = path or self._cheapest_path(giver, participants, kinds)
        if path is None or not self._carry_out(path):
            return None
        return path[-1][2]

    def _copied(self, giver: int, participants: Sequence[int]) -> Path | None:
        """To the takers with the least load, whatever it costs: others may be served for free."""
        for _, alike in groupby(participants, key=self.loads.__getitem__):
            path = self._direct(giver, list(alike), WITH_COPY)
            if path is not None:
                return path
        return None

    def _direct(
        self, giver: int, participants: Sequence[int], kinds: Iterable[Kind]
    ) -> Path | None:
        for kind in kinds:
            for taker in participants:
                thing = self._offers[kind].peek(giver, taker)
                if thing is not None:
                    return [(thing, giver, taker)]
        return None

    def _cheapest_path(self, giver: int, ends: Sequence[int], kinds: Iterable[Kind]) -> Path | None:
        """Returns the path with the least cost, then the fewest steps, then the emptiest end."""
        reached: set[int] = set()
        queue: list[tuple[int, int, int, int, Path]] = [(0, 0, 0, giver, [])]
        while queue:
            cost, length, _, broker, path = heapq.heappop(queue)
            if broker in reached:
                continue
            reached.add(broker)
            if broker in ends and path:
                return path
            for taker in self._limits.participants:
                if taker in reached:
                    continue
                for kind in kinds:
                    thing = self._offers[kind].peek(broker, taker)
                    if thing is not None:
                        further = cost + (kind not in WITHOUT_COPY)
                        way = [*path, (thing, broker, taker)]
                        heapq.heappush(queue, (further, length + 1, self.loads[taker], taker, way))
                        break
        return None

    def _carry_out(self, path: Path) -> bool:
        """Runs the path backwards, so that each step fits.

        With fewer racks than replicas, two steps of one partition may not fit together. Then
        everything is undone, and False is returned.
        """
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
