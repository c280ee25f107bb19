"""What a client knows of the cluster. No I/O: answers and hints go in, leaders come out.

Answers come from different brokers, and not in the order of what they tell: nothing that
is known is replaced by something older (interleaving 13 of ARCHITECTURE.md), and so no
topic by one that had its name before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client.retry import Leader
from tidelog.errors import TidelogError
from tidelog.model import NO_EPOCH, NO_LEADER, LeaderHint, TopicPartition
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import broker_pb2


class KnownLeader(NamedTuple):
    broker_id: int
    leader_epoch: int
    unclean_leader_epoch: int = NO_EPOCH
    is_hint: bool = False


@dataclass(slots=True)
class KnownTopic:
    topic_id: str
    leaders: list[KnownLeader]
    config: dict[str, str]
    create_revision: int


class _KnownBroker(NamedTuple):
    address: str
    broker_epoch: int


class MetadataCache:
    """Within one cluster the creation revision of a topic's name, the leader epochs of a
    topic id, broker epochs and the controller epoch only grow."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_address = ""
        self._controller_epoch = -1
        self._brokers: dict[int, _KnownBroker] = {}
        self._topics: dict[str, KnownTopic] = {}
        self._errors: dict[str, TidelogError] = {}

    def apply(self, answer: broker_pb2.MetadataResponse) -> None:
        if answer.cluster_id and self.cluster_id and answer.cluster_id != self.cluster_id:
            self._forget_order()
        self.cluster_id = answer.cluster_id or self.cluster_id
        if answer.HasField("controller"):
            controller = answer.controller
            if controller.controller_epoch >= self._controller_epoch:
                self._controller_epoch = controller.controller_epoch
                self.controller_address = controller.address
        for broker in answer.brokers:
            known = self._brokers.get(broker.broker_id)
            if known is None or broker.broker_epoch >= known.broker_epoch:
                self._brokers[broker.broker_id] = _KnownBroker(broker.address, broker.broker_epoch)
        for topic in answer.topics:
            if topic.HasField("error"):
                # What is known stays: the broker that answered may be behind.
                self._errors[topic.name] = error_from_wire(topic.error)
            else:
                self._errors.pop(topic.name, None)
                self._apply_topic(topic)

    def _forget_order(self) -> None:
        """Another cluster has the addresses now, whose revisions and epochs are its own."""
        self._controller_epoch = -1
        self._brokers.clear()
        for topic in self._topics.values():
            topic.create_revision = 0

    def _apply_topic(self, topic: broker_pb2.TopicMetadata) -> None:
        known = self._topics.get(topic.name)
        create_revision = topic.create_revision
        if known is not None and known.topic_id != topic.topic_id:
            if create_revision < known.create_revision:
                # The broker that answered has not seen yet that the name has another topic.
                return
            known = None
        told = [
            KnownLeader(p.leader, p.leader_epoch, p.unclean_leader_epoch) for p in topic.partitions
        ]
        if known is not None:
            create_revision = max(create_revision, known.create_revision)
            for partition, leader in enumerate(known.leaders):
                if partition >= len(told):
                    told.append(leader)
                elif leader.leader_epoch > told[partition].leader_epoch:
                    told[partition] = leader
        self._topics[topic.name] = KnownTopic(
            topic.topic_id, told, dict(topic.config), create_revision
        )

    def apply_hint(self, partition: TopicPartition, topic_id: str, hint: LeaderHint) -> bool:
        """Takes a leader that a broker named while it refused a request for this topic id;
        False if it is not newer."""
        topic = self._topics.get(partition.topic)
        if topic is None or topic.topic_id != topic_id or not hint.address:
            return False
        if not 0 <= partition.partition < len(topic.leaders):
            return False
        if hint.leader_epoch <= topic.leaders[partition.partition].leader_epoch:
            return False
        # Whether that election was clean is told by the next answer of metadata.
        unclean_epoch = topic.leaders[partition.partition].unclean_leader_epoch
        topic.leaders[partition.partition] = KnownLeader(
            hint.broker_id, hint.leader_epoch, unclean_epoch, is_hint=True
        )
        known = self._brokers.get(hint.broker_id)
        if known is None or known.address != hint.address:
            epoch = -1 if known is None else known.broker_epoch
            self._brokers[hint.broker_id] = _KnownBroker(hint.address, epoch)
        return True

    def topic(self, name: str) -> KnownTopic | None:
        """None also where no partition is known: it is still being created."""
        known = self._topics.get(name)
        return known if known is not None and known.leaders else None

    def error(self, name: str) -> TidelogError | None:
        """What the last answer said against a topic."""
        return self._errors.get(name)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """None where there is none, or where nobody told its address."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.leaders):
            return None
        known = topic.leaders[partition.partition]
        if known.broker_id == NO_LEADER:
            return None
        broker = self._brokers.get(known.broker_id)
        if broker is None:
            return None
        return Leader(
            known.broker_id,
            known.leader_epoch,
            broker.address,
            topic.topic_id,
            known.unclean_leader_epoch,
            known.is_hint,
        )

    def addresses(self) -> list[str]:
        return [broker.address for broker in self._brokers.values()]
