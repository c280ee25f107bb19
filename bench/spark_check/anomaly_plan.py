"""The anomalies that are planted in a history, and their places. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tidelog.history import Anomaly

PARTITIONS = 12
RECORDS_PER_POLL = 50
ROUNDS_PER_DRAIN_POLL = 10
ROUNDS_PER_SEGMENT = 100
EPOCHS = 40
# For each replica of a partition; a divergence is planted in one of them.
DIGEST_RANGES = 10
# The rounds between two anomalies of one partition, so that they do not affect each other.
APART = 4

# The further anomalies that the checker finds for one of each kind.
COMPANIONS: Mapping[Anomaly, Counter[Anomaly]] = {
    # Both the consumer and the drain got the offsets around it.
    Anomaly.LOST_WRITE: Counter({Anomaly.INTERNAL_SKIP: 2}),
}


class Place(NamedTuple):
    """The place of an anomaly.

    - `round`: for replica divergence, the number of the range of offsets; unused for unseen
      records.
    """

    partition: int
    round: int


@dataclass(frozen=True)
class AnomalyPlan:
    """The places of `of_each` anomalies of each kind, which `seed` chooses.

    A round has `RECORDS_PER_POLL` records of each partition, and a poll of each partition.
    """

    rounds: int
    of_each: int
    seed: int

    @classmethod
    def of_operations(cls, operations: int, of_each: int, seed: int) -> AnomalyPlan:
        """Returns a plan for about `operations`. Raises `ValueError` if they are too few."""
        rounds = operations // (PARTITIONS * (2 * RECORDS_PER_POLL + 1))
        places = rounds // APART * PARTITIONS
        if len(Anomaly) * of_each > places // 2 or of_each > PARTITIONS:
            raise ValueError(
                f"{operations:,} operations have no room for {of_each} anomalies of each kind; "
                "use more operations, or fewer anomalies"
            )
        return cls(rounds, of_each, seed)

    @property
    def rounds_per_epoch(self) -> int:
        return max(1, self.rounds // EPOCHS)

    def epoch_of(self, round_number: int) -> int:
        return round_number // self.rounds_per_epoch

    @cached_property
    def places(self) -> Mapping[Place, Anomaly]:
        """The places of anomalies that lie in rounds."""
        rng = random.Random(self.seed)
        free = [
            Place(partition, number)
            for partition in range(PARTITIONS)
            for number in range(1, self.rounds - APART, APART)
        ]
        chosen: dict[Place, Anomaly] = {}
        epochs_with_two = set()
        kinds = [one for one in Anomaly if one not in (Anomaly.UNSEEN, Anomaly.REPLICA_DIVERGENCE)]
        for place in rng.sample(free, len(free)):
            if len(chosen) == len(kinds) * self.of_each:
                break
            kind = kinds[len(chosen) % len(kinds)]
            epoch = (place.partition, self.epoch_of(place.round))
            if kind is Anomaly.TWO_LEADERS and epoch in epochs_with_two:
                continue
            if kind is Anomaly.TWO_LEADERS:
                epochs_with_two.add(epoch)
            chosen[place] = kind
        return chosen

    @cached_property
    def unseen(self) -> frozenset[int]:
        """Partitions with one record more than clients read."""
        return frozenset(random.Random(self.seed + 1).sample(range(PARTITIONS), self.of_each))

    @cached_property
    def divergent(self) -> frozenset[Place]:
        ranges = [Place(p, number) for p in range(PARTITIONS) for number in range(DIGEST_RANGES)]
        return frozenset(random.Random(self.seed + 2).sample(ranges, self.of_each))

    @property
    def expected(self) -> Counter[Anomaly]:
        found = Counter(self.places.values())
        for companions in COMPANIONS.values():
            for companion, count in companions.items():
                found[companion] += count * self.of_each
        found[Anomaly.UNSEEN] = len(self.unseen)
        found[Anomaly.REPLICA_DIVERGENCE] = len(self.divergent)
        return found
