"""Spreads items evenly over brokers with as few transfers as possible. No I/O.

The items are the replicas of partitions (`replica_sets.py`), and then the preferred leaders among
them (`preferred_leaders.py`). Both are a flow problem. While one broker has two more than another
and a path of transfers connects them, one item is transferred along it. The path may lead over
other brokers. When no such path is left, no other spread is more even. Brokers and items are
small numbers here.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple, Protocol

# A path to a broker that has less: for each step the item, its giver and its taker.
Path = list[tuple[int, int, int]]


class TransferKind(enum.IntEnum):
    """What the transfer of an item means.

    The first two cost nothing and are tried first. FOLLOWED comes before LED if the takers hold
    equally many.
    """

    RETURN = 0  # the taker held it before the plan
    FREE = 1  # the giver did not hold it before the plan, or has to lose it
    FOLLOWED = 2  # the giver held it, and another broker led it
    LED = 3


WITHOUT_COPY = (TransferKind.RETURN, TransferKind.FREE)
WITH_COPY = (TransferKind.FOLLOWED, TransferKind.LED)


class Distribution(Protocol):
    """Which broker holds what."""

    def fits(self, item: int, giver: int, taker: int) -> bool:
        """Whether the giver holds it and the taker may hold it instead."""
        ...

    def returns(self, item: int, giver: int, taker: int) -> bool:
        """Whether it fits and is a RETURN."""
        ...

    def transfer(self, item: int, giver: int, taker: int) -> None: ...

    def holders(self, item: int) -> Sequence[int]: ...

    def kinds(self, item: int, giver: int) -> Sequence[TransferKind]:
        """The kinds that a transfer away from the giver may be."""
        ...


class CandidateTransfers:
    """For each giver and taker the next item that fits.

    Each pair checks each item once, and again only after it has changed hands. That keeps the time
    for 300,000 replicas on 30 brokers at a few seconds.
    """

    def __init__(self, fits: Callable[[int, int, int], bool], brokers: int) -> None:
        self._fits = fits
        self._items: list[list[int]] = [[] for _ in range(brokers)]
        self._next = [[0] * brokers for _ in range(brokers)]

    def add(self, item: int, giver: int) -> None:
        """Offers the item. After any of its holders has changed, add it again for all of them."""
        self._items[giver].append(item)

    def peek(self, giver: int, taker: int) -> int | None:
        items, fits = self._items[giver], self._fits
        position = self._next[giver][taker]
        while position < len(items):
            if fits(items[position], giver, taker):
                self._next[giver][taker] = position
                return items[position]
            position += 1
        self._next[giver][taker] = position
        return None

    def begin_at(self, giver: int, part: Fraction) -> None:
        """`part`: the fraction of the giver's items that comes last."""
        items = self._items[giver]
        first = int(len(items) * part)
        self._items[giver] = items[first:] + items[:first]


class Limits(NamedTuple):
    """Limits of a levelling.

    - `participants`: brokers that may receive items.
    - `emptied`: brokers that have to end with nothing.
    - `floors`: by broker, the least number that it keeps; a broker at its floor gives nothing.
    - `free_only`: only transfers that cost nothing are made.
    """

    participants: Sequence[int]
    emptied: Sequence[int]
    floors: Sequence[int]
    free_only: bool = False


class LoadLeveller:
    """`loads`: the number of items of each broker; updated in place."""

    def __init__(self, spread: Distribution, items: int, loads: list[int], limits: Limits) -> None:
        self.loads = loads
        self._distribution = spread
        self._limits = limits
        self._offers = {
            kind: CandidateTransfers(
                spread.returns if kind is TransferKind.RETURN else spread.fits, len(loads)
            )
            for kind in TransferKind
        }
        for item in range(items):
            self._offer(item)
        # Each giver begins at another item. Otherwise all would give the same takers replicas of
        # the same partitions, and if one of these failed, its load would fall on the others alone.
        for turn, giver in enumerate(limits.participants):
            for offers in self._offers.values():
                offers.begin_at(giver, Fraction(turn, len(limits.participants)))

    def run(self) -> None:
        for broker in self._limits.emptied:
            while self.loads[broker] > 0:
                if self._transfer_from(broker, tuple(TransferKind), all_of_it=True) is None:
                    raise ValueError(f"what broker {broker} holds fits nowhere else")
        # All brokers first make the free transfers: a copy might turn out to be unnecessary.
        self._level(WITHOUT_COPY)
        if not self._limits.free_only:
            self._level(tuple(TransferKind))

    def _level(self, kinds: Sequence[TransferKind]) -> None:
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
            taker = self._transfer_from(broker, kinds)
            if taker is not None:
                heapq.heappush(heap, (-self.loads[broker], broker))
                heapq.heappush(heap, (-self.loads[taker], taker))

    def _offer(self, item: int) -> None:
        for broker in self._distribution.holders(item):
            for kind in self._distribution.kinds(item, broker):
                if kind in WITHOUT_COPY or not self._limits.free_only:
                    self._offers[kind].add(item, broker)

    def _transfer_from(
        self, giver: int, kinds: Sequence[TransferKind], *, all_of_it: bool = False
    ) -> int | None:
        """Transfers one item and returns the broker whose load grew. None: nothing can be gained.

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
        self, giver: int, participants: Sequence[int], kinds: Iterable[TransferKind]
    ) -> Path | None:
        for kind in kinds:
            for taker in participants:
                item = self._offers[kind].peek(giver, taker)
                if item is not None:
                    return [(item, giver, taker)]
        return None

    def _cheapest_path(
        self, giver: int, ends: Sequence[int], kinds: Iterable[TransferKind]
    ) -> Path | None:
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
                    item = self._offers[kind].peek(broker, taker)
                    if item is not None:
                        further = cost + (kind not in WITHOUT_COPY)
                        way = [*path, (item, broker, taker)]
                        heapq.heappush(queue, (further, length + 1, self.loads[taker], taker, way))
                        break
        return None

    def _carry_out(self, path: Path) -> bool:
        """Runs the path backwards, so that each step fits.

        With fewer racks than replicas, two steps of one partition may not fit together. Then
        everything is undone, and False is returned.
        """
        done: Path = []
        for item, giver, taker in reversed(path):
            if not self._distribution.fits(item, giver, taker):
                for undone, former, latter in reversed(done):
                    self._transfer(undone, latter, former)
                return False
            self._transfer(item, giver, taker)
            done.append((item, giver, taker))
        return True

    def _transfer(self, item: int, giver: int, taker: int) -> None:
        self._distribution.transfer(item, giver, taker)
        self.loads[giver] -= 1
        self.loads[taker] += 1
        self._offer(item)
