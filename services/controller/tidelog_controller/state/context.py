"""The controller's knowledge of the store: brokers, topics, partitions and intents.

All knowledge enters through `absorb`, whether it was read, watched, written or found in a failed
comparison. The knowledge of each key only moves forward, by revision: what the controller wrote is
known before the watch delivers it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.policies.electability import LiveBroker
from tidelog_controller.policies.leader_transfer import RequestedLeader
from tidelog_controller.policies.racks import RackedBroker
from tidelog_controller.policies.reassignment import RequestedMove
from tidelog_controller.state.known_levels import KnownLevels
from tidelog_controller.state.metadata_records import (
    UNTHROTTLED,
    Absorbed,
    Addition,
    Broker,
    BrokerChanged,
    Consent,
    ConsentChanged,
    Deletion,
    DeletionChanged,
    DepartureChanged,
    MaintenanceChanged,
    Malformed,
    Mark,
    OperationChanged,
    Partition,
    PartitionChanged,
    PartitionsIntentChanged,
    Removal,
    ThrottleState,
    Topic,
    TopicChanged,
    absorb_mark,
    layout_of,
    own,
)
from tidelog_controller.state.operation_registry import HeldOperation, Operations, PlanChunk
from tidelog_controller.state.unplaced import UnplacedPartitions
from tidelog_runtime.metadata.keys import (
    BrokerAdditionKey,
    BrokerDirectoryKey,
    BrokerKey,
    BrokerPressureKey,
    BrokerRemovalKey,
    DepartureKey,
    Keys,
    MaintenanceKey,
    OperationKey,
    OperationPlanKey,
    ParsedKey,
    PartitionKey,
    PartitionsAdditionKey,
    PartitionsRemovalKey,
    RecoveryKey,
    RejectedStartKey,
    ThrottleKey,
    TopicDeletionKey,
    TopicKey,
)
from tidelog_runtime.metadata.operations import (
    decode_moves,
    decode_operation,
)
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    decode_broker,
    decode_departure,
    decode_leader_and_isr,
    decode_recovery_consent,
    decode_throttle,
    decode_topic,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.metadata.topic_intents import (
    decode_partitions_addition,
    decode_partitions_removal,
    decode_topic_deletion,
)
from tidelog_runtime.registered_brokers import KnownDirectories


@dataclass(frozen=True, slots=True)
class ControllerIdentity:
    """One controller term. `key_revision`: creation revision of the `controller` key."""

    controller_id: int
    controller_epoch: int
    key_revision: int


class Context:
    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.brokers: dict[int, Broker] = {}
        self.live: dict[int, LiveBroker] = {}
        # Only for descriptions: no decision depends on them.
        self.directories = KnownDirectories()
        self.topics: dict[str, Topic] = {}
        self.deletions: dict[str, Deletion] = {}
        self.additions: dict[str, Addition] = {}
        self.removals: dict[str, Removal] = {}
        self.consents: dict[TopicPartition, Consent] = {}
        self.operations = Operations()
        # Grows when anything changes that a plan of moves depends on, except live brokers.
        self.layout_version = 0
        self.changes = 0  # the number of absorbed changes
        self.removed_brokers: dict[int, Mark] = {}
        self.added_brokers: dict[int, Mark] = {}
        self.maintenance: dict[int, Mark] = {}
        # Valid for this controller term only.
        self.requested_leaders: dict[TopicPartition, RequestedLeader] = {}
        self.inspected: dict[TopicPartition, int] = {}  # by the number of requests
        self.rejecting_disks: Collection[int] = ()  # broker ids, as reported
        self.throttle = UNTHROTTLED
        self.levels = KnownLevels()
        self.malformed: set[str] = set()  # keys
        # The moves that operations request now; a begun move continues without its operation.
        self.requested_moves: Mapping[TopicPartition, RequestedMove] = {}
        self._retargeted: dict[TopicPartition, None] = {}
        # Topics with a removal whose first leader epoch may have to rise, since the last call of
        # `drain_first_epochs_to_check`: a partition was stopped at a newer epoch.
        self._first_epochs_to_check: dict[str, None] = {}
        # Everything up to this revision is known, because the watch has delivered it.
        self.revision = 0
        self._partitions: dict[str, dict[int, Partition]] = {}
        self.unplaced = UnplacedPartitions()
        # Topics whose partitions, and brokers whose replicas, no snapshot shares.
        self._owned: set[str] = set()
        self._owned_brokers: set[int] = set()
        self._by_broker: dict[int, dict[TopicPartition, None]] = {}
        self._ahead: dict[str, int] = {}  # keys known beyond `revision`, with theirs

    def partition(self, partition: TopicPartition) -> Partition | None:
        return self._partitions.get(partition.topic, {}).get(partition.partition)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, p) for p in sorted(self._partitions.get(topic, ()))]

    def held_of(self, topic: str) -> Mapping[int, Partition]:
        """By number; those that changed last are at the end."""
        return self._partitions.get(topic, {})

    def has_partition_from(self, topic: str, first: int) -> bool:
        """Whether a partition of this number or above has a key. The last changed are checked
        first: one that is being removed is found soon."""
        return any(number >= first for number in reversed(self._partitions.get(topic, {})))

    @property
    def partition_count(self) -> int:
        """The number of partitions that have a key."""
        return sum(len(partitions) for partitions in self._partitions.values())

    def replicas_on(self, broker_id: int) -> Iterator[tuple[TopicPartition, Partition]]:
        for partition in self._by_broker.get(broker_id, ()):
            yield partition, self._partitions[partition.topic][partition.partition]

    def replica_count(self, broker_id: int) -> int:
        return len(self._by_broker.get(broker_id, ()))

    def names_on(self, broker_id: int) -> Collection[TopicPartition]:
        """A live view of the partitions with a replica on the broker."""
        return self._by_broker.get(broker_id, {}).keys()

    def unreadable_topics(self) -> set[str]:
        """Topics with unreadable keys: some of their partitions, replicas, or their id and
        configuration are unknown."""
        return self.topics_of(self.malformed)

    def topics_of(self, keys: Iterable[str]) -> set[str]:
        """The topics whose own key, or a partition's key, is among `keys`; intents do not count."""
        topics = set()
        for key in keys:
            match self.keys.parse(key):
                case TopicKey(topic) | PartitionKey(TopicPartition(topic=topic)):
                    topics.add(topic)
        return topics

    def running_brokers(self) -> list[int]:
        return sorted(b for b, broker in self.brokers.items() if broker.running)

    def placement_brokers(self) -> list[int]:
        """The brokers that may hold replicas of new partitions."""
        return [b for b in self.running_brokers() if b not in self.removed_brokers]

    def accepts_replicas(self, broker_id: int) -> bool:
        """Whether a plan may move existing replicas to it: it was added, or holds some already. A
        broker that has only registered gets replicas of new partitions."""
        if broker_id in self.removed_brokers:
            return False
        return broker_id in self.added_brokers or bool(self._by_broker.get(broker_id))

    def snapshot(self) -> Context:
        """Returns a copy for plans and descriptions; read only, also by another thread. Only maps
        are copied; a topic's partitions and a broker's replicas only once they change."""
        copy = Context(self.keys)
        copy.brokers, copy.live = dict(self.brokers), dict(self.live)
        copy.topics, copy.malformed = dict(self.topics), set(self.malformed)
        copy.deletions, copy.removals = dict(self.deletions), dict(self.removals)
        copy.added_brokers = dict(self.added_brokers)
        copy.removed_brokers = dict(self.removed_brokers)
        copy.maintenance, copy.requested_moves = dict(self.maintenance), self.requested_moves
        copy.rejecting_disks = frozenset(self.rejecting_disks)
        copy.operations = self.operations.snapshot()
        copy._partitions, copy.unplaced = dict(self._partitions), self.unplaced.snapshot()
        self._owned.clear()
        copy._by_broker = dict(self._by_broker)
        self._owned_brokers.clear()
        return copy

    def advance_operations(self, receivers: Collection[int] | None = None) -> None:
        """Updates the moves that operations request. `receivers`: brokers to which moves may begin;
        None: all."""
        wanted = self.operations.advance(self.state_to_stay, receivers)
        if wanted is not None:
            self.request_moves(wanted)

    def state_to_stay(self, partition: TopicPartition) -> LeaderAndIsr | None:
        """None: the partition does not exist, or is being deleted."""
        held = self.partition(partition)
        return held.state if held is not None and not self.is_being_deleted(partition) else None

    def racked(self, broker_ids: Iterable[int]) -> list[RackedBroker]:
        """Registered brokers, each with its rack."""
        return [RackedBroker(b, self.brokers[b].registration.rack) for b in broker_ids]

    def is_being_deleted(self, partition: TopicPartition) -> bool:
        """Whether the partition is being deleted, with its topic or by itself."""
        return self._deletion_revision(partition) is not None

    def _deletion_revision(self, partition: TopicPartition) -> int | None:
        """The revision of the intent to delete it; None: there is none."""
        deletion = self.deletions.get(partition.topic)
        if deletion is not None:
            return deletion.revision
        removal = self.removals.get(partition.topic)
        if removal is not None and partition.partition >= removal.entry.first:
            return removal.revision
        return None

    def is_stopped(self, partition: TopicPartition) -> bool:
        """Whether the partition was stopped in order to be deleted. Only that leaves both ISR and
        eligible set empty."""
        since = self._deletion_revision(partition)
        held = self.partition(partition)
        if since is None or held is None or held.revision < since:
            return False
        state = held.state
        return state.leader == NO_LEADER and not state.isr and not state.eligible

    def can_delete_key(self, partition: TopicPartition) -> bool:
        """Whether the key may be deleted: the topic records the leader epoch beyond which the next
        partition of this number has to begin. A deleted topic needs no such record: its id is never
        reused."""
        if partition.topic in self.deletions:
            return True
        topic, held = self.topics.get(partition.topic), self.partition(partition)
        if topic is None or held is None:
            return False
        return held.state.leader_epoch < topic.entry.first_leader_epoch

    def drain_first_epochs_to_check(self) -> list[str]:
        """Topics changed since the last call whose first leader epoch may have to rise."""
        topics, self._first_epochs_to_check = self._first_epochs_to_check, {}
        return list(topics)

    def _check_first_epoch(self, topic: str) -> None:
        if topic in self.removals:
            self._first_epochs_to_check[topic] = None

    def request_moves(self, wanted: Mapping[TopicPartition, RequestedMove]) -> None:
        """Replaces the requested moves."""
        before, self.requested_moves = self.requested_moves, dict(wanted)
        changed = [p for p in ({**before, **wanted}) if before.get(p) != wanted.get(p)]
        self._retargeted.update(dict.fromkeys(changed))

    def drain_retargeted(self) -> list[TopicPartition]:
        """The partitions whose requested state has changed since the last call."""
        changed, self._retargeted = self._retargeted, {}
        return list(changed)

    def count_inspection(self, partitions: Iterable[TopicPartition], by: int) -> None:
        """`by` is 1 if one more request needs the logs of these partitions, which have no leader,
        and -1 if one less does."""
        for partition in partitions:
            count = self.inspected.pop(partition, 0) + by
            if count:
                self.inspected[partition] = count
            if count == max(by, 0):
                self._retargeted[partition] = None

    def request_leader(self, partition: TopicPartition, leader: RequestedLeader | None) -> None:
        """Sets the requested leader of a partition; None: there is none."""
        if leader is None:
            self.requested_leaders.pop(partition, None)
        elif self.requested_leaders.get(partition) != leader:
            self.requested_leaders[partition], self._retargeted[partition] = leader, None

    def watched_to(self, revision: int) -> None:
        """The watch will deliver nothing more up to this revision."""
        self.revision = max(self.revision, revision)
        # In the order of absorption, which is nearly that of revisions. An entry that stays longer
        # costs nothing; to check all of them, for each of many answers, would.
        ahead = self._ahead
        for key in list(takewhile(lambda key: ahead[key] <= self.revision, ahead)):
            del ahead[key]

    def absorb(self, change: Changed) -> Absorbed | None:
        """Takes one key's state at a revision. None: it is known already, or does not matter."""
        key, value, revision = change
        if revision <= max(self.revision, self._ahead.get(key, 0)):
            return None
        self._ahead.pop(key, None)
        self._ahead[key] = revision
        self.changes += 1
        try:
            absorbed = self._absorb(key, value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.malformed.add(key)
            return Malformed(key, f"{type(error).__name__}: {error}")
        self.malformed.discard(key)
        return absorbed

    def _moved_on(self) -> None:
        self.layout_version += 1

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
            case parsed:
                return self._absorb_operation(parsed, value)

    def _absorb_operation(
        self, parsed: ParsedKey | None, value: KeyValue | None
    ) -> Absorbed | None:
        match parsed:
            case OperationKey(operation_id):
                former = self.operations.held.get(operation_id)
                held = None
                if value is not None:
                    entry = decode_operation(value.value)
                    held = HeldOperation(entry, value.mod_revision, value.create_revision)
                self.operations.absorb(operation_id, held)
                self._moved_on()
                old = former.entry if former else None
                return OperationChanged(operation_id, old, held.entry if held else None)
            case OperationPlanKey(operation_id, chunk):
                planned = None
                if value is not None:
                    planned = PlanChunk(decode_moves(value.value), value.mod_revision)
                self.operations.absorb_chunk(operation_id, chunk, planned)
                return None
            case BrokerRemovalKey(broker_id):
                absorb_mark(self.removed_brokers, broker_id, value)
                self._moved_on()
                return None
            case BrokerAdditionKey(broker_id):
                absorb_mark(self.added_brokers, broker_id, value)
                self._moved_on()
                return None
            case MaintenanceKey(broker_id):
                absorb_mark(self.maintenance, broker_id, value)
                return MaintenanceChanged(broker_id, self.maintenance.get(broker_id))
            case ThrottleKey():
                self.throttle = UNTHROTTLED
                if value is not None:
                    bound = decode_throttle(value.value).bytes_per_second
                    self.throttle = ThrottleState(bound, value.mod_revision)
                return None
            case BrokerDirectoryKey() | RejectedStartKey() | BrokerPressureKey():
                self.directories.apply(parsed, value)
                return None
            case _:
                self.levels.absorb(parsed, value)
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
            new = Topic.of(entry, value.create_revision, value.mod_revision)
        old = self.topics.pop(topic, None)
        if old is not None and new is not None and old.entry.topic_id == new.entry.topic_id:
            # The answer to an overwriting transaction does not carry the key's creation revision.
            new = new._replace(create_revision=old.create_revision)
        if new is not None:
            self.topics[topic] = new
        self.unplaced.topic_changed(topic, old, new, self.held_of(topic))
        self._check_first_epoch(topic)
        self._moved_on()
        return TopicChanged(topic, old, new)

    def _absorb_partition(
        self, partition: TopicPartition, value: KeyValue | None
    ) -> PartitionChanged:
        new = None
        if value is not None:
            new = Partition(decode_leader_and_isr(value.value), value.mod_revision)
        self.operations.touch(partition)
        siblings = own(self._partitions, self._owned, partition.topic)
        old = siblings.pop(partition.partition, None)
        if new is not None:
            siblings[partition.partition] = new
        held_by = old.state.replicas if old is not None else ()
        placed_on = new.state.replicas if new is not None else ()
        if held_by != placed_on:
            for broker_id in held_by:
                own(self._by_broker, self._owned_brokers, broker_id).pop(partition, None)
            for broker_id in placed_on:
                own(self._by_broker, self._owned_brokers, broker_id)[partition] = None
        if not siblings:
            del self._partitions[partition.topic]
        self.unplaced.partition_changed(partition, new, self.topics.get(partition.topic))
        if layout_of(old) != layout_of(new):
            self._moved_on()
        if self.is_stopped(partition) and not self.can_delete_key(partition):
            self._first_epochs_to_check[partition.topic] = None
        return PartitionChanged(partition, old, new)

    def _absorb_deletion(self, topic: str, value: KeyValue | None) -> DeletionChanged:
        self.deletions.pop(topic, None)
        self._check_first_epoch(topic)
        self._moved_on()
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
        self._moved_on()
        if new is not None:
            self.removals[topic] = new
        self._check_first_epoch(topic)
        return PartitionsIntentChanged(topic, old, new)

    def _absorb_consent(self, partition: TopicPartition, value: KeyValue | None) -> ConsentChanged:
        self.consents.pop(partition, None)
        if value is None:
            return ConsentChanged(partition, None)
        new = Consent(decode_recovery_consent(value.value), value.mod_revision)
        self.consents[partition] = new
        return ConsentChanged(partition, new)
