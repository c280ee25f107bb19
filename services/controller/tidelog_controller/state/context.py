"""What the controller knows of the store: brokers, topics, partitions and intents.

All knowledge comes in through `absorb`, whether it was read, watched, written or found
in a failed comparison. Each key only ever moves forward, by its revision: what the
controller wrote is known before the watch delivers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.policies.electability import ElectionRules, LiveBroker
from tidelog_controller.policies.racks import RackedBroker
from tidelog_controller.policies.reassignment import WantedMove
from tidelog_runtime.metadata.keys import (
    BrokerKey,
    DepartureKey,
    Keys,
    PartitionKey,
    PartitionsAdditionKey,
    PartitionsRemovalKey,
    RecoveryKey,
    TopicDeletionKey,
    TopicKey,
)
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    Departure,
    LeaderAndIsr,
    RecoveryConsent,
    TopicEntry,
    decode_broker,
    decode_departure,
    decode_leader_and_isr,
    decode_recovery_consent,
    decode_topic,
    decode_topic_deletion,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.metadata.topic_intents import (
    PartitionsAddition,
    PartitionsRemoval,
    decode_partitions_addition,
    decode_partitions_removal,
)
from tidelog_runtime.topic_config import TopicConfig


class Broker(NamedTuple):
    broker_id: int
    registration: BrokerRegistration
    broker_epoch: int

    @property
    def running(self) -> bool:
        return self.registration.state == RUNNING


class Topic(NamedTuple):
    """`revision`: modification revision. `rules`: what `config`, its configuration, asks for."""

    entry: TopicEntry
    create_revision: int
    revision: int
    config: TopicConfig
    rules: ElectionRules

    @property
    def min_isr(self) -> int:
        """Of a new partition."""
        return self.config.min_isr(self.entry.replication_factor)


class Partition(NamedTuple):
    """`revision`: modification revision, the version that a write names."""

    state: LeaderAndIsr
    revision: int


class Deletion(NamedTuple):
    topic_id: str
    revision: int
    trace_id: str = ""


class Consent(NamedTuple):
    """`revision`: modification revision."""

    entry: RecoveryConsent
    revision: int


class Addition(NamedTuple):
    entry: PartitionsAddition
    revision: int


class Removal(NamedTuple):
    entry: PartitionsRemoval
    revision: int


class BrokerChanged(NamedTuple):
    broker_id: int
    old: Broker | None
    new: Broker | None


class DepartureChanged(NamedTuple):
    broker_id: int
    new: Departure | None


class TopicChanged(NamedTuple):
    topic: str
    old: Topic | None
    new: Topic | None


class PartitionChanged(NamedTuple):
    partition: TopicPartition
    old: Partition | None
    new: Partition | None


class DeletionChanged(NamedTuple):
    topic: str
    new: Deletion | None


class PartitionsIntentChanged(NamedTuple):
    topic: str
    old: Addition | Removal | None
    new: Addition | Removal | None


class ConsentChanged(NamedTuple):
    partition: TopicPartition
    new: Consent | None


class Malformed(NamedTuple):
    """A value that is not what its key asks for. What was known of the key stands, and
    the controller leaves it alone until it is mended."""

    key: str
    problem: str


Absorbed = (
    BrokerChanged
    | DepartureChanged
    | TopicChanged
    | PartitionChanged
    | DeletionChanged
    | PartitionsIntentChanged
    | ConsentChanged
    | Malformed
)


@dataclass(frozen=True, slots=True)
class ControllerIdentity:
    """One reign. `key_revision`: creation revision of the `controller` key."""

    controller_id: int
    controller_epoch: int
    key_revision: int


class Context:
    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.brokers: dict[int, Broker] = {}
        self.live: dict[int, LiveBroker] = {}
        self.topics: dict[str, Topic] = {}
        self.deletions: dict[str, Deletion] = {}
        self.additions: dict[str, Addition] = {}
        self.removals: dict[str, Removal] = {}
        self.consents: dict[TopicPartition, Consent] = {}
        self.malformed: set[str] = set()  # keys
        # What operations want of partitions now; what was begun goes on without.
        self.wanted_moves: Mapping[TopicPartition, WantedMove] = {}
        self._wanted_anew: dict[TopicPartition, None] = {}
        # All is known up to here, because the watch has delivered it.
        self.revision = 0
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._by_broker: dict[int, dict[TopicPartition, None]] = {}
        self._ahead: dict[str, int] = {}  # keys known beyond `revision`, and up to where

    def partition(self, partition: TopicPartition) -> Partition | None:
        return self._partitions.get(partition.topic, {}).get(partition.partition)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, p) for p in sorted(self._partitions.get(topic, ()))]

    @property
    def partition_count(self) -> int:
        """Partitions that have a key."""
        return sum(len(partitions) for partitions in self._partitions.values())

    def replicas_on(self, broker_id: int) -> Iterator[tuple[TopicPartition, Partition]]:
        for partition in self._by_broker.get(broker_id, ()):
            yield partition, self._partitions[partition.topic][partition.partition]

    def unplaced(self, topic: str) -> list[TopicPartition]:
        """Partitions of a topic that have no replicas yet."""
        entry = self.topics[topic].entry
        placed = self._partitions.get(topic, {})
        return [
            TopicPartition(topic, p)
            for p in range(entry.partitions)
            if p not in placed or placed[p].state.topic_id != entry.topic_id
        ]

    def running_brokers(self) -> list[int]:
        return sorted(b for b, broker in self.brokers.items() if broker.running)

    def placement_brokers(self) -> list[int]:
        """Those that take new replicas."""
        return self.running_brokers()

    def racked(self, broker_ids: Iterable[int]) -> list[RackedBroker]:
        """Registered brokers, each with its rack."""
        return [RackedBroker(b, self.brokers[b].registration.rack) for b in broker_ids]

    def is_going(self, partition: TopicPartition) -> bool:
        """Whether it is to be deleted, with its topic or by itself."""
        return self._going_since(partition) is not None

    def _going_since(self, partition: TopicPartition) -> int | None:
        """The revision of the intent."""
        deletion = self.deletions.get(partition.topic)
        if deletion is not None:
            return deletion.revision
        removal = self.removals.get(partition.topic)
        if removal is not None and partition.partition >= removal.entry.first:
            return removal.revision
        return None

    def is_stopped(self, partition: TopicPartition) -> bool:
        """Whether the partition was stopped in order to be deleted. Nothing else leaves
        both ISR and eligible set empty."""
        since = self._going_since(partition)
        held = self.partition(partition)
        if since is None or held is None or held.revision < since:
            return False
        state = held.state
        return state.leader == NO_LEADER and not state.isr and not state.eligible

    def want_moves(self, wanted: Mapping[TopicPartition, WantedMove]) -> None:
        """From now on this is wanted, and nothing else."""
        before, self.wanted_moves = self.wanted_moves, dict(wanted)
        changed = [p for p in ({**before, **wanted}) if before.get(p) != wanted.get(p)]
        self._wanted_anew.update(dict.fromkeys(changed))

    def take_wanted_anew(self) -> list[TopicPartition]:
        """Partitions of which something else is wanted since this was last asked."""
        changed, self._wanted_anew = self._wanted_anew, {}
        return list(changed)

    def watched_to(self, revision: int) -> None:
        """The watch will deliver nothing up to this revision any more."""
        self.revision = max(self.revision, revision)
        for key in [k for k, known in self._ahead.items() if known <= self.revision]:
            del self._ahead[key]

    def absorb(self, change: Changed) -> Absorbed | None:
        """Takes one key's state as of a revision. None: it was known, or is of no concern."""
        key, value, revision = change
        if revision <= max(self.revision, self._ahead.get(key, 0)):
            return None
        self._ahead[key] = revision
        try:
            absorbed = self._absorb(key, value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.malformed.add(key)
            return Malformed(key, f"{type(error).__name__}: {error}")
        self.malformed.discard(key)
        return absorbed

    def _absorb(self, key: str, value: KeyValue | None) -> Absorbed | None:
        match self.keys.parse(key):
            case BrokerKey(broker_id):
                return self._absorb_broker(broker_id, value)
            case DepartureKey(broker_id):
                departure = decode_departure(value.value) if value is not None else None
                return DepartureChanged(broker_id, departure)
            case TopicKey(topic):
                return self._absorb_topic(topic, value)
            case PartitionKey(partition):
                return self._absorb_partition(partition, value)
            case TopicDeletionKey(topic):
                return self._absorb_deletion(topic, value)
            case PartitionsAdditionKey(topic):
                return self._absorb_addition(topic, value)
            case PartitionsRemovalKey(topic):
                return self._absorb_removal(topic, value)
            case RecoveryKey(partition):
                return self._absorb_consent(partition, value)
            case _:
                return None

    def _absorb_broker(self, broker_id: int, value: KeyValue | None) -> BrokerChanged:
        new = None
        if value is not None:
            new = Broker(broker_id, decode_broker(value.value), value.create_revision)
        old = self.brokers.pop(broker_id, None)
        self.live.pop(broker_id, None)
        if new is not None:
            self.brokers[broker_id] = new
            self.live[broker_id] = LiveBroker(
                new.broker_epoch,
                new.running,
                new.registration.whole_since or new.broker_epoch,
                new.registration.synced_whole_since or new.broker_epoch,
            )
        return BrokerChanged(broker_id, old, new)

    def _absorb_topic(self, topic: str, value: KeyValue | None) -> TopicChanged:
        new = None
        if value is not None:
            entry = decode_topic(value.value)
            new = _topic(entry, value)
        old = self.topics.pop(topic, None)
        if old is not None and new is not None and old.entry.topic_id == new.entry.topic_id:
            # What this controller has overwritten tells it nothing of the key's creation.
            new = new._replace(create_revision=old.create_revision)
        if new is not None:
            self.topics[topic] = new
        return TopicChanged(topic, old, new)

    def _absorb_partition(
        self, partition: TopicPartition, value: KeyValue | None
    ) -> PartitionChanged:
        new = None
        if value is not None:
            new = Partition(decode_leader_and_isr(value.value), value.mod_revision)
        siblings = self._partitions.setdefault(partition.topic, {})
        old = siblings.pop(partition.partition, None)
        if old is not None:
            for broker_id in old.state.replicas:
                self._by_broker[broker_id].pop(partition, None)
        if new is not None:
            siblings[partition.partition] = new
            for broker_id in new.state.replicas:
                self._by_broker.setdefault(broker_id, {})[partition] = None
        if not siblings:
            del self._partitions[partition.topic]
        return PartitionChanged(partition, old, new)

    def _absorb_deletion(self, topic: str, value: KeyValue | None) -> DeletionChanged:
        self.deletions.pop(topic, None)
        if value is None:
            return DeletionChanged(topic, None)
        intent = decode_topic_deletion(value.value)
        new = Deletion(intent.topic_id, value.mod_revision, intent.trace_id)
        self.deletions[topic] = new
        return DeletionChanged(topic, new)

    def _absorb_addition(self, topic: str, value: KeyValue | None) -> PartitionsIntentChanged:
        new = None
        if value is not None:
            new = Addition(decode_partitions_addition(value.value), value.mod_revision)
        old = self.additions.pop(topic, None)
        if new is not None:
            self.additions[topic] = new
        return PartitionsIntentChanged(topic, old, new)

    def _absorb_removal(self, topic: str, value: KeyValue | None) -> PartitionsIntentChanged:
        new = None
        if value is not None:
            new = Removal(decode_partitions_removal(value.value), value.mod_revision)
        old = self.removals.pop(topic, None)
        if new is not None:
            self.removals[topic] = new
        return PartitionsIntentChanged(topic, old, new)

    def _absorb_consent(self, partition: TopicPartition, value: KeyValue | None) -> ConsentChanged:
        self.consents.pop(partition, None)
        if value is None:
            return ConsentChanged(partition, None)
        new = Consent(decode_recovery_consent(value.value), value.mod_revision)
        self.consents[partition] = new
        return ConsentChanged(partition, new)


def _topic(entry: TopicEntry, value: KeyValue) -> Topic:
    try:
        config = TopicConfig.parse(entry.config)
    except TidelogError as error:
        raise ValueError(error.message) from error
    return Topic(
        entry,
        value.create_revision,
        value.mod_revision,
        config,
        ElectionRules(
            synced=config.durability == "synced",
            recovery=config.recovery,
            unclean_leader_election=config.unclean_leader_election,
        ),
    )
