"""The preferred leaders of partitions while a plan is made (`levelling.py`). No I/O.

Brokers and partitions are numbers here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_controller.policies.levelling import Kind, Levelling, Limits, Offers
from tidelog_controller.policies.replica_sets import ReplicaSets


class PreferredLeaders:
    """The preferred leader of each partition, as a `Spread` that `Levelling` levels.

    `leaders`: by partition. A partition whose leader lost its replica has the number of a stand-in
    that is no broker.
    """

    def __init__(self, leaders: list[int], originals: Sequence[int], sets: ReplicaSets) -> None:
        self.leaders = leaders
        self._originals = originals
        self._sets = sets.sets

    def fits(self, thing: int, giver: int, taker: int) -> bool:
        return self.leaders[thing] == giver and taker in self._sets[thing]

    def hand_over(self, thing: int, giver: int, taker: int) -> None:  # noqa: ARG002
        self.leaders[thing] = taker

    def returns(self, thing: int, giver: int, taker: int) -> bool:
        return taker == self._originals[thing] and self.fits(thing, giver, taker)

    def holders(self, thing: int) -> Sequence[int]:
        return (self.leaders[thing],)

    def kinds(self, thing: int, giver: int) -> Sequence[Kind]:
        if giver == self._originals[thing]:
            return (Kind.LED,)
        return (Kind.RETURN, Kind.FREE)


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
        self._led = Offers(self._led_fits, len(loads))
        self._followed = Offers(self._followed_fits, len(loads))
        for thing in range(len(sets.sets)):
            self._offer(thing)

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
                self._hand_over(followed, taker, giver)
            self._hand_over(led, giver, taker)
            self._leading.hand_over(led, giver, taker)
            self._offer(led)
            loads[giver] -= 1
            loads[taker] += 1
            return True
        return False

    def _has_one_to_spare(self, giver: int, taker: int) -> bool:
        loads = self._replica_loads
        return loads[giver] > max(loads[taker], self._replica_floors[giver])

    def _hand_over(self, thing: int, giver: int, taker: int) -> None:
        self._sets.hand_over(thing, giver, taker)
        self._replica_loads[giver] -= 1
        self._replica_loads[taker] += 1
        self._offer(thing)

    def _offer(self, thing: int) -> None:
        for broker in self._sets.holders(thing):
            (self._led if self._leading.leaders[thing] == broker else self._followed).add(
                thing, broker
            )

    def _led_fits(self, thing: int, giver: int, taker: int) -> bool:
        return self._leading.leaders[thing] == giver and self._sets.fits(thing, giver, taker)

    def _followed_fits(self, thing: int, giver: int, taker: int) -> bool:
        return self._leading.leaders[thing] != giver and self._sets.fits(thing, giver, taker)


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
        Levelling(leading, len(leading.leaders), loads, limits).run()
        if limits.free_only:
            return
        # An exchanged replica may become the leader on its new broker, and so on.
        if not LeaderSwaps(leading, sets, replica_loads, replica_floors).run(loads, limits):
            return
