"""The replicas and leaderships of brokers, and the minimum of replicas to copy. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidelog.client.descriptions import TopicDescription
from tidelog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Holdings:
    """The replicas and leaders of all partitions.

    - `moving`: the number of partitions that are being moved.
    - `out_of_sync`: the number of replicas that are not in their ISR.
    """

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    leaders: Mapping[TopicPartition, int]
    moving: int = 0
    out_of_sync: int = 0

    @property
    def replica_count(self) -> int:
        return sum(map(len, self.replicas.values()))

    def replicas_by_broker(self, brokers: Iterable[int]) -> dict[int, int]:
        held = Counter(broker for replicas in self.replicas.values() for broker in replicas)
        return {broker: held[broker] for broker in brokers}

    def leaders_by_broker(self, brokers: Iterable[int]) -> dict[int, int]:
        led = Counter(self.leaders.values())
        return {broker: led[broker] for broker in brokers}


def holdings_of(topics: Iterable[TopicDescription]) -> Holdings:
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    leaders: dict[TopicPartition, int] = {}
    moving = out_of_sync = 0
    for topic in topics:
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition)
            replicas[name] = partition.replicas
            leaders[name] = partition.leader
            moving += bool(partition.moving_operation)
            out_of_sync += len(set(partition.replicas) - set(partition.isr))
    return Holdings(replicas, leaders, moving, out_of_sync)


def spread(counts: Mapping[int, int]) -> int:
    """Returns the difference between the largest and the smallest count."""
    return max(counts.values()) - min(counts.values())


def copied(before: Holdings, after: Holdings) -> int:
    """Returns the number of replicas on brokers that had no replica of the partition before."""
    return sum(
        len(set(replicas) - set(before.replicas.get(partition, ())))
        for partition, replicas in after.replicas.items()
    )


def fewest_to_grow(before: Holdings, brokers: Collection[int]) -> int:
    """Returns what brokers lack to an equal share, rounded down. `brokers`: all brokers then."""
    floor = before.replica_count // len(brokers)
    return sum(max(0, floor - held) for held in before.replicas_by_broker(brokers).values())


def fewest_to_remove(before: Holdings, removed: Collection[int]) -> int:
    """Returns the number of replicas on the removed brokers."""
    return sum(before.replicas_by_broker(removed).values())
