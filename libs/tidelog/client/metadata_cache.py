"""What a client knows of the cluster. No I/O: answers and hints go in, leaders come out.

Answers come from different brokers, and not in the order of what they tell: nothing that
is known is replaced by something older (interleaving 13 of docs/internals/interleavings.md), and so
no topic by one that had its name before.

Each answer names the store revision that its broker has reached. A broker that has reached the
revision at which a topic was known to exist, and does not have the topic, proves that the topic
was deleted. A broker that is behind proves nothing, and what is known stays.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client.retry import Leader
from tidelog.errors import ErrorCode, TidelogError, deleted_topic, unknown_partition, unknown_topic
from tidelog.model import NO_EPOCH, NO_LEADER, LeaderHint, TopicPartition
from tidelog.rpc.wire import error_from_wire, partition_count
from tidelog.v1 import broker_pb2


class KnownLeader(NamedTuple):
    broker_id: int
    leader_epoch: int
    unclean_leader_epoch: int = NO_EPOCH
    is_hint: bool = False


_UNKNOWN_LEADER = KnownLeader(NO_LEADER, NO_EPOCH)


@dataclass(slots=True)
class KnownTopic:
    """`partitions`: how many the topic has, also while some have no replicas yet. `leaders`: by
    partition, at most that many; a partition whose leader is not known has NO_LEADER."""

    topic_id: str
    partitions: int
    leaders: list[KnownLeader]
    config: dict[str, str]
    create_revision: int
    revision: int


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
        # The newest revision that any answer named.
        self._revision = 0
        # Names that no topic had at the newest revision, and whether one that was known here was
        # deleted.
        self._denied: dict[str, bool] = {}

    def apply(self, answer: broker_pb2.MetadataResponse) -> list[str]:
        """Returns the topics whose partitions were added or removed, or which were deleted or
        created again."""
        if answer.cluster_id and self.cluster_id and answer.cluster_id != self.cluster_id:
            self._forget_order()
        self.cluster_id = answer.cluster_id or self.cluster_id
        if answer.HasField("controller"):
            controller = answer.controller
            if controller.controller_epoch >= self._controller_epoch:
                self._controller_epoch = controller.controller_epoch
                self.controller_address = controller.address
        self._revision = max(self._revision, answer.revision)
        for broker in answer.brokers:
            known = self._brokers.get(broker.broker_id)
            if known is None or broker.broker_epoch >= known.broker_epoch:
                self._brokers[broker.broker_id] = _KnownBroker(broker.address, broker.broker_epoch)
        return [topic.name for topic in answer.topics if self._apply_topic(topic, answer.revision)]

    def _forget_order(self) -> None:
        """Another cluster has the addresses now, whose revisions and epochs are its own."""
        self._controller_epoch = -1
        self._revision = 0
        self._brokers.clear()
        for topic in self._topics.values():
            topic.create_revision = topic.revision = 0

    def _apply_topic(self, topic: broker_pb2.TopicMetadata, revision: int) -> bool:
        known = self._topics.get(topic.name)
        if topic.HasField("error"):
            error = self._errors[topic.name] = error_from_wire(topic.error)
            if not revision or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            if known is None and revision >= self._revision:
                self._denied.setdefault(topic.name, False)
            if known is None or revision < known.revision:
                return False
            del self._topics[topic.name]
            self._denied[topic.name] = True
            return True
        self._errors.pop(topic.name, None)
        self._denied.pop(topic.name, None)
        told = _told(topic)
        if known is not None and known.topic_id != told.topic_id:
            if told.create_revision < known.create_revision:
                # The broker that answered has not seen yet that the name has another topic.
                return False
            self._topics[topic.name] = told
            return True
        now = self._topics[topic.name] = told if known is None else _joined(known, told)
        return known is not None and known.partitions != now.partitions

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
        """None also where nobody told how many partitions it has."""
        known = self._topics.get(name)
        return known if known is not None and known.partitions else None

    def error(self, name: str) -> TidelogError | None:
        """What the last answer said against a topic."""
        return self._errors.get(name)

    def gone(self, partition: TopicPartition) -> TidelogError | None:
        """The final error of a partition that was known here to exist: its topic was deleted, or
        it was removed from the topic. None while it exists, or may exist."""
        name = partition.topic
        topic = self._topics.get(name)
        if topic is None:
            if name not in self._denied:
                return None
            return deleted_topic(name) if self._denied[name] else unknown_topic(name)
        if topic.partitions and partition.partition >= topic.partitions:
            return unknown_partition(*partition, topic.partitions)
        return None

    def is_denied(self, name: str) -> bool:
        """Whether no topic had this name at the newest revision that any answer named."""
        return name in self._denied

    def forget_missing(self, kept: Container[str]) -> None:
        """Keeps nothing about topics that do not exist, but for the names in `kept`."""
        for name in [name for name in self._errors if name not in kept]:
            del self._errors[name]
            self._denied.pop(name, None)

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


def _told(topic: broker_pb2.TopicMetadata) -> KnownTopic:
    """An answer without partitions names no leaders."""
    leaders: list[KnownLeader] = []
    for p in topic.partitions:
        # Partitions whose replicas are not chosen yet are missing.
        leaders += [_UNKNOWN_LEADER] * (p.partition - len(leaders))
        leaders.append(KnownLeader(p.leader, p.leader_epoch, p.unclean_leader_epoch))
    return KnownTopic(
        topic.topic_id,
        partition_count(topic),
        leaders,
        dict(topic.config),
        topic.create_revision,
        topic.revision,
    )


def _joined(known: KnownTopic, told: KnownTopic) -> KnownTopic:
    """What two answers tell of one topic, in whatever order they came."""
    leaders = list(told.leaders)
    for partition, leader in enumerate(known.leaders):
        if partition >= len(leaders):
            leaders.append(leader)
        elif leader.leader_epoch > leaders[partition].leader_epoch:
            leaders[partition] = leader
    newer = told if told.revision >= known.revision else known
    # Who does not tell the revision may be behind, and partitions are seldom removed.
    most = max(known.partitions, told.partitions)
    partitions = most if told.revision == known.revision else newer.partitions
    return KnownTopic(
        known.topic_id,
        partitions,
        # Partitions that were removed, or that an answer which is behind still lists, have none.
        leaders[:partitions],
        newer.config,
        max(known.create_revision, told.create_revision),
        newer.revision,
    )
