"""Helpers that plant invalid states: one partition on three brokers, with incarnations 11, 12,
13."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from simulation.data_losses import DataLosses
from simulation.partition_id import PartitionId
from simulation.replica_rules import ReplicaRules
from simulation.replicas import Loss, Replica
from simulation.shadow_logs import Entry
from simulation.store_rules import StoreRules
from simulation.violation import Violation
from tidelog.model import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    LeaderAndIsr,
    Member,
    TopicEntry,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.metadata.topic_intents import TopicDeletion, encode_intent

KEYS = Keys("test")
NAME = TopicPartition("sea", 0)
TOPIC_ID = "topic-id-topic-id-topi"
PARTITION = PartitionId(TOPIC_ID, 0)
A, B, C = Member(1, 11), Member(2, 12), Member(3, 13)
CONTROLLER_EPOCH = 7


def state(
    leader: int = 1,
    epoch: int = 5,
    isr: tuple[Member, ...] = (A, B, C),
    eligible: tuple[Member, ...] = (),
    min_isr: int = 2,
    unclean: int = NO_EPOCH,
) -> LeaderAndIsr:
    return LeaderAndIsr(
        TOPIC_ID, (1, 2, 3), CONTROLLER_EPOCH, leader, epoch, isr, eligible, min_isr, unclean
    )


def registration(
    whole_since: int = 0, where: str = RUNNING, host: str = "10.0.0.1"
) -> BrokerRegistration:
    return BrokerRegistration(f"{host}:7500", "", "uuid", where, whole_since, whole_since)


class Store:
    """Writes keys, one per revision, and has the rules check each."""

    def __init__(self) -> None:
        self.losses = DataLosses()
        self.rules = StoreRules(KEYS, self.losses)
        self.revision = 10
        for broker_id in (1, 2, 3):
            self.register(broker_id)
        self.put(KEYS.controller_epoch, str(CONTROLLER_EPOCH).encode())
        self.put(KEYS.topic(NAME.topic), encode(TopicEntry(TOPIC_ID, 1, 3)))

    def register(self, broker_id: int, whole_since: int = 0) -> int:
        """Register a broker and return its broker epoch."""
        self.put(KEYS.broker(broker_id), encode(registration(whole_since)))
        return self.revision

    def put(self, key: str, value: bytes, create_revision: int = 0) -> None:
        self.revision += 1
        item = KeyValue(key, value, create_revision or self.revision, self.revision)
        self.rules.absorb([Changed(key, item, self.revision)])

    def configure(self, **config: str) -> None:
        """Configure the topic."""
        self.put(KEYS.topic(NAME.topic), encode(TopicEntry(TOPIC_ID, 1, 3, config)))

    def delete(self, key: str) -> None:
        self.revision += 1
        self.rules.absorb([Changed(key, None, self.revision)])

    def delete_topic(self) -> None:
        """Begin the deletion of the topic."""
        self.put(KEYS.topic_deletion(NAME.topic), encode_intent(TopicDeletion(TOPIC_ID)))

    def shrink(self) -> None:
        """Begin the removal of the topic's only partition."""
        self.put(KEYS.topic(NAME.topic), encode(TopicEntry(TOPIC_ID, 0, 3)))

    def remove_partition(self, last_epoch: int) -> None:
        """Remove the partition and add it again, without replicas yet."""
        self.shrink()
        self.write(state(leader=NO_LEADER, epoch=last_epoch, isr=()))
        self.delete(KEYS.leader_and_isr(NAME))
        self.put(KEYS.topic(NAME.topic), encode(TopicEntry(TOPIC_ID, 1, 3)))

    def write(self, value: LeaderAndIsr) -> int:
        self.put(KEYS.leader_and_isr(NAME), encode_leader_and_isr(value), create_revision=1)
        return self.revision


@dataclass
class Life:
    name: str
    broker_epoch: int


@dataclass
class Shown:
    """The observable state of a partition."""

    state: LeaderAndIsr | None = None
    revision: int = 0
    high_watermark: int = 0
    leading: object | None = None


class Cluster:
    """Replicas of the three brokers, all open and empty."""

    def __init__(self) -> None:
        self.store = Store()
        self.losses: list[Loss] = []
        self.rules = ReplicaRules(self.store.rules, self.losses.append)
        self.replicas: dict[int, Replica] = {}
        self.shown: dict[int, Shown] = {}
        for broker_id, incarnation in (A, B, C):
            self.replicas[broker_id] = self.rules.of(broker_id, PARTITION)
            self.open(broker_id, f"broker-{broker_id}/1", incarnation, 0)

    def open(
        self, broker_id: int, name: str, broker_epoch: int, end: int, *, lost: bool = False
    ) -> None:
        self.shown[broker_id] = Shown()
        self.rules.opened(self.replicas[broker_id], Life(name, broker_epoch), 0, end, lost=lost)

    def append(self, epoch: int, *broker_ids: int, content: int = 0) -> None:
        """Append one record to the end of each of these."""
        for broker_id in broker_ids:
            log = self.replicas[broker_id].log
            log.add(Entry(log.end, log.end + 1, epoch, content or 1000 * epoch + log.end))

    def lead(self, broker_id: int, value: LeaderAndIsr, high_watermark: int = 0) -> None:
        revision = self.store.write(value)
        self.show(broker_id, Shown(value, revision, high_watermark, object()))

    def follow(self, broker_id: int, value: LeaderAndIsr, high_watermark: int = 0) -> None:
        self.show(broker_id, Shown(value, 0, high_watermark))

    def show(self, broker_id: int, shown: Shown) -> None:
        self.shown[broker_id] = shown
        self.rules.judge(self.replicas[broker_id], shown)

    def move(self, broker_id: int, high_watermark: int) -> None:
        self.show(broker_id, replace(self.shown[broker_id], high_watermark=high_watermark))

    def lose_all(self) -> Member:
        """All return in new incarnations, none of them intact. Returns that of broker 2."""
        return [Member(b, self.store.register(b)) for b in (1, 2, 3)][1]

    def commit(self, count: int = 3, epoch: int = 5) -> None:
        """Broker 1 leads, and all have `count` committed records."""
        self.lead(1, state(epoch=epoch))
        for _ in range(count):
            self.append(epoch, 1, 2, 3)
        self.move(1, count)


class Finds:
    """`with finds("name"):` expects a violation of exactly this name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._raises = pytest.raises(Violation)

    def __enter__(self) -> None:
        self._raised = self._raises.__enter__()

    def __exit__(self, *error: object) -> bool:
        caught = self._raises.__exit__(*error)  # type: ignore[arg-type]
        assert self._raised.value.name == self._name, self._raised.value
        return bool(caught)


finds = Finds
