"""The topics of a world: their configuration, and how clients write to them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidelog.model import Acks, TopicPartition

YEAR_MS = 365 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic and its producer.

    - `acks`: of the producer. What only a leader acknowledges is not checked for loss.
    """

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)
    acks: Acks = Acks.ALL
    batches_per_second: float = 1.0
    # Whether its records are kept, so that clients' histories can be checked by them.
    keeps_all: bool = True
    # How far its batches are dated ahead, in turn.
    ahead_ms: tuple[int, ...] = (0,)

    @property
    def all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(self.partitions)]


SYNCED_TOPIC = "lake"
TOPICS = (
    # Segments are rolled while named producers write, so that their state is carried over.
    TopicPlan("sea", 3, 3, {"segment_ms": "1500"}, batches_per_second=1.3),
    TopicPlan(SYNCED_TOPIC, 1, 3, {"durability": "synced"}, batches_per_second=0.8),
    TopicPlan("pond", 1, 2, {"min_insync_replicas": "1"}, batches_per_second=0.5),
    TopicPlan("brook", 1, 3, {"min_insync_replicas": "1"}, Acks.LEADER, batches_per_second=0.3),
)
# Topics that may be recovered only by hand, with the share of seeds that have it so; and the share
# in which any live replica may lead instead, at the price of records.
MANUAL = {"sea": 0.25, "pond": 0.6, "brook": 0.6}
UNCLEAN = {"sea": 0.1, "pond": 0.3, "brook": 0.25}
# Retention overtakes followers that were away. Timestamps far ahead, which it accepts, do not delay
# that.
CREEK = TopicPlan(
    "creek",
    1,
    3,
    {
        "segment_ms": "1500",
        "retention_ms": "3000",
        "timestamp_max_ahead_ms": str(10 * YEAR_MS),
    },
    batches_per_second=0.4,
    keeps_all=False,
    ahead_ms=(YEAR_MS, 0, 0, 0),
)


def draw_topics(rng: random.Random) -> list[TopicPlan]:
    """Returns the topics of a seed.

    Some need a consent before they lose anything, and some allow any live replica. Records have
    the times of their producer or of the leader, by which retention deletes them.
    """
    drawn = [_drawn(plan, rng.random()) for plan in TOPICS]
    timestamp_type = rng.choice(("create", "append"))
    return [*drawn, replace(CREEK, config={**CREEK.config, "timestamp_type": timestamp_type})]


def _drawn(plan: TopicPlan, draw: float) -> TopicPlan:
    manual = MANUAL.get(plan.name, 0.0)
    if draw < manual:
        return replace(plan, config={**plan.config, "recovery": "manual"})
    if draw < manual + UNCLEAN.get(plan.name, 0.0):
        return replace(plan, config={**plan.config, "unclean_leader_election": "true"})
    return plan
