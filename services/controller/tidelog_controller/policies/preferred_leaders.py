"""The preferred leaders of partitions while a plan is made (`levelling.py`). No I/O.

Brokers and partitions are numbers here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_controller.policies.load_levelling import (
    CandidateTransfers,
    Limits,
    LoadLeveller,
    TransferKind,
)
from tidelog_controller.policies.replica_sets import ReplicaSets


class PreferredLeaders:
    """The preferred leader of each partition, as a `Distribution` that `LoadLeveller` levels.

    `leaders`: by partition. A partition whose leader lost its replica has the number of a stand-in
    that is no broker.
    """

    def __init__(self, leaders: list[int], originals: Sequence[int], sets: ReplicaSets) -> None:
        self.leaders = leaders
        self._originals = originals
        self._sets = sets.sets

    def fits(self, item: int, giver: int, taker: int) -> bool:
        return self.leaders[item] == giver and taker in self._sets[item]

    def transfer(self, item: int, giver: int, taker: int) -> None:  # noqa: ARG002
        self.leaders[item] = taker

    def returns(self, item: int, giver: int, taker: int) -> bool:
        return taker == self._originals[item] and self.fits(item, giver, taker)

    def holders(self, item: int) -> Sequence[int]:
        return (self.leaders[item],)

    def kinds(self, item: int, giver: int) -> Sequence[TransferKind]:
        if giver == self._originals[item]:
            return (TransferKind.LED,)
        return (TransferKind.RETURN, TransferKind.FREE)


class LeaderSwaps:
    """Exchanges replicas so that leaderships can be spread further.

    Needed if a broker leads two partitions more than another, and no replica holder may take a
    leadership from it. The other broker then gets the replica as well. In exchange it gives up a
    replica that it does not lead, unless it has fewer replicas anyway.

    - `loads`: replicas by broker; updated in place.
    - `floors`: the least number of replicas of each broker.
    """

    def __init__(
        self,
        leading: PreferredLeaders,
        sets: ReplicaSets,
        loads: list[int],
        floors: Sequence[int],
    ) -> None:
        self._leading = leading
        self._sets = sets
        self._replica_loads = loads
        self._replica_floors = floors
        self._led = CandidateTransfers(self._led_fits, len(loads))
        self._followed = CandidateTransfers(self._followed_fits, len(loads))
        for item in range(len(sets.sets)):
            self._offer(item)

    def run(self, loads: list[int], limits: Limits) -> bool:
        """Returns whether anything was gained. `loads`: leaders by broker; updated in place."""
        gained = False
        givers = sorted(limits.participants, key=lambda b: (-loads[b], b))
        # Each turn brings two loads closer together.
        while any(self._swap_from(giver, loads, limits) for giver in givers):
            gained = True
            givers.sort(key=lambda b: (-loads[b], b))
        return gained

    def _swap_from(self, giver: int, loads: list[int], limits: Limits) -> bool:
        if loads[giver] <= limits.floors[giver]:
            return False
        for taker in sorted(limits.participants, key=lambda b: (loads[b], b)):
            if loads[taker] > loads[giver] - 2:
                return False
            led, followed = self._led.peek(giver, taker), self._followed.peek(taker, giver)
            may_keep = self._has_one_to_spare(giver, taker)
            if led is None or (followed is None and not may_keep):
                continue
            if followed is not None and (
                not may_keep or self._sets.copies(followed, taker, giver) < 0
            ):
                self._transfer(followed, taker, giver)
            self._transfer(led, giver, taker)
            self._leading.transfer(led, giver, taker)
            self._offer(led)
            loads[giver] -= 1
            loads[taker] += 1
            return True
        return False

    def _has_one_to_spare(self, giver: int, taker: int) -> bool:
        loads = self._replica_loads
        return loads[giver] > max(loads[taker], self._replica_floors[giver])

    def _transfer(self, item: int, giver: int, taker: int) -> None:
        self._sets.transfer(item, giver, taker)
        self._replica_loads[giver] -= 1
        self._replica_loads[taker] += 1
        self._offer(item)

    def _offer(self, item: int) -> None:
        for broker in self._sets.holders(item):
            (self._led if self._leading.leaders[item] == broker else self._followed).add(
                item, broker
            )

    def _led_fits(self, item: int, giver: int, taker: int) -> bool:
        return self._leading.leaders[item] == giver and self._sets.fits(item, giver, taker)

    def _followed_fits(self, item: int, giver: int, taker: int) -> bool:
        return self._leading.leaders[item] != giver and self._sets.fits(item, giver, taker)


def spread_leaders(
    leading: PreferredLeaders,
    sets: ReplicaSets,
    loads: list[int],
    limits: Limits,
    replica_loads: list[int],
    replica_floors: Sequence[int],
) -> None:
    """Levels preferred leaders over brokers.

    `loads` are the leaders by broker. `loads` and `replica_loads` are updated in place.
    """
    while True:
        LoadLeveller(leading, len(leading.leaders), loads, limits).run()
        if limits.free_only:
            return
        # An exchanged replica may become the leader on its new broker, and so on.
        if not LeaderSwaps(leading, sets, replica_loads, replica_floors).run(loads, limits):
            return
