"""A client's metadata of the cluster: answers and hints go in, leaders come out. No I/O.

Answers come from different brokers and out of order. Nothing is replaced by something older
(rule `zombie-resets-no-client`), so no topic is replaced by an earlier one of
the same name.

Each answer has the store revision that its broker has reached. A broker that has reached the
revision at which a topic was known to exist, and does not have the topic, proves that the topic
was deleted. An answer from a broker that is behind proves nothing and changes nothing.
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
    """A topic.

    - `partitions`: number of partitions, including those without replicas yet.
    - `leaders`: by partition, at most that many; NO_LEADER if the leader is not known.
    """

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
    """Within one cluster, these only increase: the creation revision of a topic's name, the leader
    epochs of a topic id, broker epochs, and the controller epoch."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_address = ""
        self._controller_epoch = -1
        self._brokers: dict[int, _KnownBroker] = {}
        # Versions by address, as the last answer reported them.
        self.versions: dict[str, str] = {}
        self._topics: dict[str, KnownTopic] = {}
        self._errors: dict[str, TidelogError] = {}
        # The newest revision in any answer.
        self._revision = 0
        # Names that no topic had at the newest revision, and whether a known topic was deleted.
        self._denied: dict[str, bool] = {}

    def apply(
        self, answer: broker_pb2.MetadataResponse, topics: Container[str] | None = None
    ) -> list[str]:
        """Applies an answer, of `topics` only if they are given. Returns topics whose partitions
        were added or removed, or which were deleted or created again."""
        if answer.cluster_id and self.cluster_id and answer.cluster_id != self.cluster_id:
            self._forget_order()
        self.cluster_id = answer.cluster_id or self.cluster_id
        versions = [(broker.address, broker.version) for broker in answer.brokers]
        versions += [(process.address, process.version) for process in answer.controllers]
        self.versions = {address: version for address, version in versions if version}
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
        return [
            topic.name
            for topic in answer.topics
            if (topics is None or topic.name in topics)
            and self._apply_topic(topic, answer.revision)
        ]

    def _forget_order(self) -> None:
        """Resets revisions and epochs, because another cluster has the addresses now."""
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
        was_denied = self._denied.pop(topic.name, None) is not None
        reported = _topic_from_wire(topic)
        if known is not None and known.topic_id != reported.topic_id:
            if reported.create_revision < known.create_revision:
                # The broker that answered does not know yet that the name has another topic.
                return False
            self._topics[topic.name] = reported
            return True
        now = self._topics[topic.name] = reported if known is None else _joined(known, reported)
        return was_denied or (known is not None and known.partitions != now.partitions)

    def apply_hint(self, partition: TopicPartition, topic_id: str, hint: LeaderHint) -> bool:
        """Applies a leader that a broker named when it rejected a request for this topic id.
        Returns False if it is not newer."""
        topic = self._topics.get(partition.topic)
        if topic is None or topic.topic_id != topic_id or not hint.address:
            return False
        if not 0 <= partition.partition < len(topic.leaders):
            return False
        if hint.leader_epoch <= topic.leaders[partition.partition].leader_epoch:
            return False
        # The next metadata answer says whether that election was clean.
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
        """Returns None also if the number of partitions is not known."""
        known = self._topics.get(name)
        return known if known is not None and known.partitions else None

    def error(self, name: str) -> TidelogError | None:
        """Returns the error of a topic in the last answer."""
        return self._errors.get(name)

    def removal_error(self, partition: TopicPartition) -> TidelogError | None:
        """Returns the final error of a partition: its topic was deleted, or it was removed from the
        topic. None while it exists, or may exist."""
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
        """Returns whether no topic had this name at the newest revision in any answer."""
        return name in self._denied

    def forget_missing(self, kept: Container[str]) -> None:
        """Forgets topics that do not exist, except the names in `kept`."""
        for name in [name for name in self._errors if name not in kept]:
            del self._errors[name]
            self._denied.pop(name, None)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Returns None if there is no leader, or if its address is not known."""
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


def _topic_from_wire(topic: broker_pb2.TopicMetadata) -> KnownTopic:
    """Converts a topic. An answer without partitions has no leaders."""
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


def _joined(known: KnownTopic, reported: KnownTopic) -> KnownTopic:
    """Merges two answers about one topic, in whatever order they came."""
    leaders = list(reported.leaders)
    for partition, leader in enumerate(known.leaders):
        if partition >= len(leaders):
            leaders.append(leader)
        elif leader.leader_epoch > leaders[partition].leader_epoch:
            leaders[partition] = leader
    newer = reported if reported.revision >= known.revision else known
    # An answer without a revision may be behind, and partitions are rarely removed.
    most = max(known.partitions, reported.partitions)
    partitions = most if reported.revision == known.revision else newer.partitions
    return KnownTopic(
        known.topic_id,
        partitions,
        # No leaders for removed partitions, which an answer that is behind may still list.
        leaders[:partitions],
        newer.config,
        max(known.create_revision, reported.create_revision),
        newer.revision,
    )
