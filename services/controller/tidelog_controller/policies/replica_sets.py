"""The replicas of partitions while a plan is made (`levelling.py`). No I/O.

It knows which broker holds what, and which replica may replace which. Brokers and partitions are
numbers here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_controller.policies.load_levelling import TransferKind
from tidelog_controller.policies.racks import least_used, rack_sizes


class ReplicaSets:
    """The replicas of each partition, as a `Distribution` that `LoadLeveller` levels.

    - `originals`: by partition, the brokers that held it before the plan.
    - `sets`: by partition, the brokers that are to hold it; at first the same.
    - `racks`: of the brokers that take part, which have the lowest numbers. Only these may receive
      replicas. Every other broker counts as a rack of its own.
    - `brokers`: the number of brokers.
    - `leaving`: by broker, whether it has to end with nothing.
    """

    def __init__(
        self,
        originals: Sequence[Sequence[int]],
        racks: Sequence[int],
        brokers: int,
        leaving: Sequence[bool],
    ) -> None:
        self.originals = originals
        self.sets = [list(replicas) for replicas in originals]
        self._sizes = rack_sizes(racks)
        self._rack_count = len(self._sizes)
        self._part = len(racks)
        others = range(self._rack_count, self._rack_count + brokers - self._part)
        self._racks: list[int] = [*racks, *others]
        # By partition: the racks of its replicas, in the same order.
        self._places = [[self._racks[broker] for broker in replicas] for replicas in originals]
        self._leaving = leaving
        # Partitions that have fewer replicas than before. Which of them stay may change; nothing is
        # copied.
        self._shrunk = [False] * len(originals)

    def fits(self, item: int, giver: int, taker: int) -> bool:
        """Whether the taker's rack may hold the replica, given the partition's other replicas.

        The rack has to be free of them or to hold as few as any other (`placement.py`). The taker
        takes part. This is the most frequent check of a plan, and it mostly fails: hence the racks
        are kept at hand and compared first.
        """
        places, rack = self._places[item], self._racks[taker]
        if len(places) <= self._rack_count:
            if rack not in places:
                return giver in self.sets[item]
            # The taker's own replica would be a second one there.
            return (
                self._racks[giver] == rack
                and places.count(rack) == 1
                and giver in self.sets[item]
                and giver != taker
            )
        replicas = self.sets[item]
        if giver not in replicas or taker in replicas:
            return False
        used, free = self._usage(replicas, giver)
        return used[rack] == least_used(used, free)

    def returns(self, item: int, giver: int, taker: int) -> bool:
        return taker in self.originals[item] and self.fits(item, giver, taker)

    def copies(self, item: int, giver: int, taker: int) -> int:
        """How many more replicas are copied after this transfer: -1, 0 or 1."""
        original = self.originals[item]
        return (taker not in original) - (giver not in original)

    def transfer(self, item: int, giver: int, taker: int) -> None:
        replicas = self.sets[item]
        position = replicas.index(giver)
        replicas[position] = taker
        self._places[item][position] = self._racks[taker]

    def holders(self, item: int) -> Sequence[int]:
        return self.sets[item]

    def kinds(self, item: int, giver: int) -> Sequence[TransferKind]:
        original = self.originals[item]
        if self._shrunk[item]:
            return (TransferKind.RETURN,) if giver != original[0] else ()
        if self._leaving[giver] or giver not in original:
            return (TransferKind.RETURN, TransferKind.FREE)
        kind = TransferKind.LED if giver == original[0] else TransferKind.FOLLOWED
        if any(broker not in self.sets[item] for broker in original):
            return (TransferKind.RETURN, kind)
        return (kind,)

    def crowding(self, item: int, loads: Sequence[int]) -> int | None:
        """Returns the broker whose replica has to leave a crowded rack, or None if there is none.

        A rack is crowded if it holds two replicas more than another rack that has a broker without
        one. Of the brokers in the fullest rack, it is the one with the most replicas, and the
        preferred leader only if there is no other.
        """
        if len(set(self._places[item])) == len(self._places[item]):
            return None
        replicas = self.sets[item]
        used, free = self._usage(replicas)
        for _ in filter(self._leaving.__getitem__, replicas):
            # Its replica goes to the rack with the fewest.
            rack = min((r for r, brokers in enumerate(free) if brokers), key=used.__getitem__)
            used[rack] += 1
            free[rack] -= 1
        if not any(free):
            return None
        fewest = least_used(used, free)
        crowded = [
            broker
            for broker in replicas
            if broker < self._part and used[self._racks[broker]] >= fewest + 2
        ]
        if not crowded:
            return None
        most = max(used[self._racks[broker]] for broker in crowded)
        return max(
            (broker for broker in crowded if used[self._racks[broker]] == most),
            key=lambda b: (b != replicas[0], loads[b], b),
        )

    def extend(self, item: int, broker: int) -> None:
        """Adds one replica."""
        self.sets[item].append(broker)
        self._places[item].append(self._racks[broker])

    def shrink(self, item: int, size: int, loads: list[int]) -> None:
        """Removes replicas until `size` are left.

        Replicas on brokers that take no part go first. Then those in the racks with the most of
        them go, on the brokers that hold the most. The preferred leader stays, unless its broker
        takes no part. `loads`: updated in place.
        """
        replicas = self.sets[item]
        while len(replicas) > size:
            self._shrunk[item] = True
            used, _ = self._usage(replicas)
            elsewhere = [broker for broker in replicas if broker >= self._part]
            broker = (
                elsewhere[-1]
                if elsewhere
                else max(replicas[1:], key=lambda b: (used[self._racks[b]], loads[b], b))
            )
            position = replicas.index(broker)
            del replicas[position], self._places[item][position]
            loads[broker] -= 1

    def result(self, item: int) -> list[int]:
        """Returns the replicas in order of preference.

        A staying broker keeps its place. A new broker takes the place of one that left, or comes
        last.
        """
        original, replicas = self.originals[item], self.sets[item]
        new = [broker for broker in replicas if broker not in original]
        dropped = len(original) > len(replicas)
        placed: list[int] = []
        for broker in original:
            if broker in replicas:
                placed.append(broker)
            elif new and not dropped:
                placed.append(new.pop(0))
        return placed + new

    def _usage(
        self, replicas: Sequence[int], without: int | None = None
    ) -> tuple[list[int], list[int]]:
        """By rack: the partition's replicas, and the participating brokers that have none."""
        used, free = [0] * self._rack_count, list(self._sizes)
        for broker in replicas:
            rack = self._racks[broker]
            if rack < self._rack_count and broker != without:
                used[rack] += 1
                free[rack] -= 1
        return used, free
