"""The index of partitions without replicas is maintained as keys change, without a search."""

from __future__ import annotations

import random

from tidelog.model import TopicPartition
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    Member,
    TopicEntry,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from unit.controller.driver import KEYS

TOPICS = ("t", "u")
MOST = 5


class Cluster:
    """A context, and the keys that it received."""

    def __init__(self) -> None:
        self.context = Context(KEYS)
        self.entries: dict[str, TopicEntry] = {}
        self.placed: dict[TopicPartition, str] = {}  # the topic's id
        self._revision = 0

    def topic(self, topic: str, topic_id: str, partitions: int | None) -> None:
        """Without `partitions` the topic is deleted."""
        self.entries.pop(topic, None)
        value = None
        if partitions is not None:
            self.entries[topic] = TopicEntry(topic_id, partitions, 1)
            value = encode(self.entries[topic])
        self._absorb(KEYS.topic(topic), value)

    def partition(self, name: TopicPartition, topic_id: str | None) -> None:
        self.placed.pop(name, None)
        value = None
        if topic_id is not None:
            self.placed[name] = topic_id
            state = LeaderAndIsr(topic_id, (1,), 1, 1, 0, (Member(1, 5),), (), 1)
            value = encode_leader_and_isr(state)
        self._absorb(KEYS.leader_and_isr(name), value)

    def expected(self) -> dict[str, list[int]]:
        """The result of a search."""
        found = {
            topic: [
                number
                for number in range(entry.partitions)
                if self.placed.get(TopicPartition(topic, number)) != entry.topic_id
            ]
            for topic, entry in self.entries.items()
        }
        return {topic: numbers for topic, numbers in found.items() if numbers}

    def _absorb(self, key: str, value: bytes | None) -> None:
        self._revision += 1
        held = KeyValue(key, value, 1, self._revision) if value is not None else None
        self.context.absorb(Changed(key, held, self._revision))


def found(context: Context) -> dict[str, list[int]]:
    unplaced = context.unplaced
    numbers = {topic: unplaced.of(topic) for topic in unplaced.topics()}
    assert all(unplaced.count(topic) == len(numbers.get(topic, ())) for topic in TOPICS)
    return numbers


def test_after_any_changes_the_index_matches_a_search() -> None:
    for seed in range(200):
        rng, cluster = random.Random(seed), Cluster()
        for _ in range(30):
            topic, topic_id = rng.choice(TOPICS), rng.choice(("a", "b"))
            if rng.random() < 0.3:
                cluster.topic(topic, topic_id, rng.choice((None, *range(1, MOST + 1))))
            else:
                name = TopicPartition(topic, rng.randrange(MOST + 1))
                cluster.partition(name, rng.choice((topic_id, topic_id, None)))
            assert found(cluster.context) == cluster.expected(), seed


def test_a_snapshot_keeps_the_unplaced_partitions_of_its_time() -> None:
    cluster = Cluster()
    cluster.topic("t", "a", 3)
    snapshot = cluster.context.snapshot()
    cluster.partition(TopicPartition("t", 1), "a")
    assert found(snapshot) == {"t": [0, 1, 2]}
    assert found(cluster.context) == {"t": [0, 2]}
