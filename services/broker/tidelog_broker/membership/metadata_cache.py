"""A copy of the metadata store in the broker, updated by its watch.

It answers Metadata requests, finds the addresses of leaders, and has the revisions that guard an
ISR change. It never makes a replica lead or follow: only the controller's commands do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import structlog

from tidelog.feature_levels import FIRST_LEVEL
from tidelog.model import NO_LEADER, LeaderHint, TopicPartition
from tidelog_broker.core.live_brokers import LiveBroker
from tidelog_runtime.metadata import schema
from tidelog_runtime.metadata.controller_records import KnownControllers
from tidelog_runtime.metadata.keys import (
    BrokerDirectoryKey,
    BrokerKey,
    BrokerPressureKey,
    ClusterKey,
    ControllerEpochKey,
    ControllerKey,
    ControllerProcessKey,
    DepartureKey,
    Keys,
    NamedProducerKey,
    ParsedKey,
    PartitionKey,
    RejectedStartKey,
    ThrottleKey,
    TopicKey,
)
from tidelog_runtime.metadata.producer_records import NamedProducer, decode_named_producer
from tidelog_runtime.metadata.schema import (
    ControllerEntry,
    ControllerProcess,
    Departure,
    LeaderAndIsr,
    TopicEntry,
)
from tidelog_runtime.metadata.store import Changed, KeyValue, Snapshot
from tidelog_runtime.pressure.records import ControllerPressures
from tidelog_runtime.registered_brokers import KnownDirectories

_log = structlog.get_logger()


class LiveTopic(NamedTuple):
    entry: TopicEntry
    create_revision: int
    revision: int


class VersionedState(NamedTuple):
    state: LeaderAndIsr
    revision: int
    create_revision: int = 0


class CachedProducerName(NamedTuple):
    """A named producer. `revision`: when the name was last used."""

    producer: NamedProducer
    revision: int


def as_changes(snapshot: Snapshot) -> list[Changed]:
    return [Changed(kv.key, kv, kv.mod_revision) for kv in snapshot.items.values()]


class MetadataCache:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._reset()

    def _reset(self) -> None:
        self.cluster_id = ""
        self.feature_level = FIRST_LEVEL
        self.controller: ControllerEntry | None = None
        self.controller_epoch = 0
        self.controllers: dict[int, ControllerProcess] = {}  # active or not
        self.past_controllers = KnownControllers(self._keys.known_controllers)
        self.controller_pressures = ControllerPressures(self._keys.controller_pressures)
        self.brokers: dict[int, LiveBroker] = {}
        self.departures: dict[int, Departure] = {}  # also of brokers that are back
        self.directories = KnownDirectories()
        self.topics: dict[str, LiveTopic] = {}
        self.partitions: dict[str, dict[int, VersionedState]] = {}
        self.throttle = schema.Throttle()
        # Named producers by name; and by producer id the epoch of the name's newest holder.
        self.producer_names: dict[str, CachedProducerName] = {}
        self.producer_epochs: dict[int, int] = {}
        self.revision = 0

    def load(self, snapshot: Snapshot) -> Sequence[ParsedKey]:
        """Replaces the content by a snapshot. Returns all of its keys."""
        fresh = MetadataCache(self._keys)
        parsed = fresh.apply(as_changes(snapshot))
        self.adopt(fresh, snapshot.revision)
        return parsed

    def adopt(self, fresh: MetadataCache, revision: int) -> None:
        """Replaces the content by that of `fresh`, read at `revision`.

        `fresh` must not be used afterwards.
        """
        vars(self).update(vars(fresh))
        self.revision = revision

    def apply(self, changes: Iterable[Changed]) -> Sequence[ParsedKey]:
        """Applies changes of the store. Returns the keys that changed."""
        parsed = []
        for change in changes:
            self.revision = max(self.revision, change.revision)
            self.past_controllers.take(change.key, change.value)
            self.controller_pressures.take(change.key, change.value)
            try:
                key = self._keys.parse(change.key)
                if key is not None:
                    self._apply(key, change.value)
                    parsed.append(key)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                # The value may have been written by hand: the previous one stays.
                _log.error(
                    "metadata_malformed",
                    key=change.key,
                    why=f"{type(error).__name__}: {error}",
                    fix="correct the value, or delete the key",
                )
        return parsed

    def _apply(self, key: ParsedKey, value: KeyValue | None) -> None:
        match key:
            case PartitionKey(partition=partition):
                self._apply_partition(partition, value)
            case TopicKey(topic=topic):
                if value is not None:
                    self.topics[topic] = LiveTopic(
                        schema.decode_topic(value.value), value.create_revision, value.mod_revision
                    )
                else:
                    self.topics.pop(topic, None)
            case BrokerKey(broker_id=broker_id):
                if value is not None:
                    self.brokers[broker_id] = LiveBroker(
                        schema.decode_broker(value.value), value.create_revision, value.mod_revision
                    )
                else:
                    self.brokers.pop(broker_id, None)
            case DepartureKey(broker_id=broker_id):
                if value is not None:
                    self.departures[broker_id] = schema.decode_departure(value.value)
                else:
                    self.departures.pop(broker_id, None)
            case BrokerDirectoryKey() | RejectedStartKey() | BrokerPressureKey():
                self.directories.apply(key, value)
            case ControllerKey() | ControllerEpochKey() | ControllerProcessKey():
                self._apply_of_controllers(key, value)
            case ClusterKey() | ThrottleKey():
                self._apply_of_cluster(key, value)
            case NamedProducerKey(name=name):
                self._apply_name(name, value)
            case _:
                pass

    def _apply_name(self, name: str, value: KeyValue | None) -> None:
        new = None
        if value is not None:
            new = CachedProducerName(decode_named_producer(value.value), value.mod_revision)
        if (former := self.producer_names.pop(name, None)) is not None:
            del self.producer_epochs[former.producer.producer_id]
        if new is not None:
            self.producer_names[name] = new
            self.producer_epochs[new.producer.producer_id] = new.producer.producer_epoch

    def _apply_of_cluster(self, key: ClusterKey | ThrottleKey, value: KeyValue | None) -> None:
        match key:
            case ClusterKey():
                held = schema.decode_cluster(value.value) if value else schema.ClusterEntry("")
                self.cluster_id, self.feature_level = held.cluster_id, held.format_version
            case ThrottleKey():
                self.throttle = schema.decode_throttle(value.value) if value else schema.Throttle()

    def _apply_partition(self, name: TopicPartition, value: KeyValue | None) -> None:
        topic, partition = name
        states = self.partitions.setdefault(topic, {})
        if value is not None:
            state = schema.decode_leader_and_isr(value.value)
            states[partition] = VersionedState(state, value.mod_revision, value.create_revision)
        else:
            states.pop(partition, None)
            if not states:
                del self.partitions[topic]

    def _apply_of_controllers(
        self,
        key: ControllerKey | ControllerEpochKey | ControllerProcessKey,
        value: KeyValue | None,
    ) -> None:
        match key:
            case ControllerKey():
                self.controller = schema.decode_controller(value.value) if value else None
            case ControllerEpochKey():
                self.controller_epoch = int(value.value) if value else 0
            case ControllerProcessKey(controller_id=controller_id):
                if value is not None:
                    process = schema.decode_controller_process(value.value)
                    self.controllers[controller_id] = process
                else:
                    self.controllers.pop(controller_id, None)

    def state_of(self, partition: TopicPartition) -> VersionedState | None:
        return self.partitions.get(partition.topic, {}).get(partition.partition)

    def state_at(self, partition: TopicPartition, revision: int) -> LeaderAndIsr | None:
        """Returns the state if the watch has brought exactly this revision, else None."""
        versioned = self.state_of(partition)
        return versioned.state if versioned and versioned.revision == revision else None

    def holds_replicas(self, broker_id: int) -> bool:
        """Whether any partition is assigned to the broker. Iterates over all partitions."""
        return any(
            broker_id in versioned.state.replicas
            for states in self.partitions.values()
            for versioned in states.values()
        )

    def name_of(self, topic_id: str, partition: int) -> TopicPartition | None:
        """Returns None if there is no such topic."""
        for topic, states in self.partitions.items():
            versioned = states.get(partition)
            if versioned is not None and versioned.state.topic_id == topic_id:
                return TopicPartition(topic, partition)
        return None

    def id_of(self, topic: str) -> str:
        """Returns an empty string if there is no such topic."""
        live = self.topics.get(topic)
        return "" if live is None else live.entry.topic_id

    def is_synced(self, topic: str) -> bool:
        """Whether the topic's durability is `synced`; False if the topic is not known."""
        live = self.topics.get(topic)
        return live is not None and live.entry.config.get("durability") == "synced"

    def leader_hint(self, partition: TopicPartition, topic_id: str = "") -> LeaderHint | None:
        """Returns where the leader is, if there is one and it is registered.

        With `topic_id`, the topic must have that id, not only that name.
        """
        versioned = self.state_of(partition)
        if versioned is None or versioned.state.leader == NO_LEADER:
            return None
        if topic_id and versioned.state.topic_id != topic_id:
            return None
        leader = self.brokers.get(versioned.state.leader)
        if leader is None:
            return None
        return LeaderHint(
            versioned.state.leader, versioned.state.leader_epoch, leader.registration.address
        )

    def running_brokers(self) -> dict[int, int]:
        """Returns the broker epoch of every broker that is registered as running."""
        return {
            broker_id: live.broker_epoch
            for broker_id, live in self.brokers.items()
            if live.registration.state == schema.RUNNING
        }
