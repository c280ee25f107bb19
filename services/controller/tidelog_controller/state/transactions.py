"""The controller's transactions: the mutation of each, its guards, and which are in flight.

Every transaction compares the creation revision of the `controller` key, so that a deposed
controller writes nothing. It also compares the modification revision of every key that it changes.
Outcomes are not interpreted here. The context absorbs them, and the code that began the transaction
decides again from the resulting state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tidelog.model import TopicPartition
from tidelog_controller.state.commands import ReadKeys, Transact
from tidelog_controller.state.context import ControllerIdentity
from tidelog_controller.state.mutations import (
    BrokerMarking,
    ConsentRemoval,
    DeletionIntent,
    DepartureRecord,
    FirstEpochRise,
    IntentRemoval,
    KeysRemoval,
    LevelChange,
    MaintenanceChange,
    Mutation,
    OperationCommit,
    OperationUpdate,
    PartitionBatch,
    PartitionWrite,
    PlanChunkWrite,
    RecoveryIntent,
    RegistrationRemoval,
    ThrottleChange,
    TopicChange,
    TopicCreation,
    TopicGuard,
    TopicRemoval,
    TopicRewrite,
    UnrecordedDepartures,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.operations import (
    BrokerMark,
    MarkedAs,
    encode_mark,
    encode_moves,
    encode_operation,
)
from tidelog_runtime.metadata.schema import (
    Throttle,
    encode,
    encode_departure,
    encode_leader_and_isr,
    encode_throttle,
)
from tidelog_runtime.metadata.store import (
    Change,
    Changed,
    CreateRevision,
    Delete,
    Guard,
    KeyValue,
    ModRevision,
    Put,
    Transaction,
    TransactionResult,
)
from tidelog_runtime.metadata.topic_intents import PartitionsAddition, TopicDeletion, encode_intent

# Batches of partitions in flight at once: enough to hide the store's latency.
MAX_BATCHES_IN_FLIGHT = 8

# The delay before the keys of a transaction without an answer are read; it doubles.
FIRST_READ_DELAY_MS = 50
MAX_READ_DELAY_MS = 2_000


@dataclass(slots=True)
class _InFlight:
    mutation: Mutation
    transaction: Transaction
    reads: int = 0


class Transactions:
    """The transactions whose outcome is unknown yet."""

    def __init__(self, keys: Keys, identity: ControllerIdentity) -> None:
        self._keys = keys
        self._identity = identity
        self._in_flight: dict[int, _InFlight] = {}
        self._last_id = 0
        self._partitions: set[TopicPartition] = set()
        self._batches = 0

    def __len__(self) -> int:
        return len(self._in_flight)

    @property
    def room_for_batch(self) -> bool:
        return self._batches < MAX_BATCHES_IN_FLIGHT

    @property
    def has_batches(self) -> bool:
        return self._batches > 0

    @property
    def records_departures(self) -> bool:
        return any(
            isinstance(entry.mutation, PartitionBatch | DepartureRecord)
            and entry.mutation.departures
            for entry in self._in_flight.values()
        )

    def writes(self, partition: TopicPartition) -> bool:
        return partition in self._partitions

    def writes_topic(self, topic: str) -> bool:
        return any(partition.topic == topic for partition in self._partitions)

    def mutation_of(self, transaction_id: int) -> Mutation:
        return self._in_flight[transaction_id].mutation

    def mutations(self) -> Iterator[Mutation]:
        """The mutations of all transactions but batches."""
        return (entry.mutation for entry in self._others())

    def is_in_flight(self, mutation: Mutation) -> bool:
        return any(entry.mutation == mutation for entry in self._others())

    def _others(self) -> Iterator[_InFlight]:
        """All transactions but batches, which take long to compare."""
        return (e for e in self._in_flight.values() if not isinstance(e.mutation, PartitionBatch))

    @property
    def next_id(self) -> int:
        """The id of the next transaction."""
        return self._last_id + 1

    def begin(self, mutation: Mutation) -> Transact:
        guards, changes = self._parts(mutation)
        guards.append(CreateRevision(self._keys.controller, self._identity.key_revision))
        transaction = Transaction(guards, changes)
        self._last_id += 1
        self._in_flight[self._last_id] = _InFlight(mutation, transaction)
        if isinstance(mutation, PartitionBatch):
            self._batches += 1
            self._partitions.update(write.partition for write in mutation.writes)
        return Transact(self._last_id, transaction)

    def outcome_unknown(self, transaction_id: int) -> ReadKeys:
        """Keeps the transaction in flight until its keys are read.

        It may have been applied, or may be applied later.
        """
        entry = self._in_flight[transaction_id]
        delay_ms = min(FIRST_READ_DELAY_MS << entry.reads, MAX_READ_DELAY_MS)
        entry.reads = min(entry.reads + 1, MAX_READ_DELAY_MS.bit_length())
        keys = tuple(guard.key for guard in entry.transaction.guards)
        return ReadKeys(transaction_id, keys, delay_ms)

    def end(self, transaction_id: int) -> tuple[Mutation, Transaction]:
        entry = self._in_flight.pop(transaction_id)
        if isinstance(entry.mutation, PartitionBatch):
            self._batches -= 1
            self._partitions.difference_update(w.partition for w in entry.mutation.writes)
        return entry.mutation, entry.transaction

    def _parts(self, mutation: Mutation) -> tuple[list[Guard], list[Change]]:
        keys = self._keys
        match mutation:
            case PartitionBatch(writes, topic_guard, departures):
                guards, changes = self._batch_parts(writes, topic_guard)
                return guards, [*changes, *self._departure_parts(departures)]
            case TopicCreation():
                return self._creation_parts(mutation)
            case TopicChange() | FirstEpochRise():
                return self._change_parts(mutation)
            case IntentRemoval(key, revision):
                return [ModRevision(key, revision)], [Delete(key)]
            case DeletionIntent(topic, topic_id, topic_revision, trace_id):
                intent = keys.topic_deletion(topic)
                return (
                    [ModRevision(keys.topic(topic), topic_revision), CreateRevision(intent, 0)],
                    [Put(intent, encode_intent(TopicDeletion(topic_id, trace_id)))],
                )
            case TopicRemoval(topic, topic_revision, intent_revision, intents):
                intent, entry_key = keys.topic_deletion(topic), keys.topic(topic)
                guards = [
                    ModRevision(intent, intent_revision),
                    ModRevision(entry_key, topic_revision),
                    *(ModRevision(key, revision) for key, revision in intents),
                ]
                gone: list[Change] = [Delete(entry_key)] if topic_revision else []
                gone += [Delete(key) for key, _ in intents]
                return guards, [*gone, Delete(intent)]
            case RecoveryIntent():
                return self._intent_parts(mutation)
            case ConsentRemoval(consents):
                revisions = {keys.recovery(partition): revision for partition, revision in consents}
                return (
                    [ModRevision(key, revision) for key, revision in revisions.items()],
                    [Delete(key) for key in revisions],
                )
            case RegistrationRemoval(broker_id, broker_epoch, departure):
                key = keys.broker(broker_id)
                # The departure is stored before the registration is gone.
                kept = self._departure_parts(((broker_id, departure),))
                return [CreateRevision(key, broker_epoch)], [*kept, Delete(key)]
            case DepartureRecord(departures):
                return [], self._departure_parts(departures)
            case (
                PlanChunkWrite()
                | OperationCommit()
                | OperationUpdate()
                | KeysRemoval()
                | ThrottleChange()
                | LevelChange()
                | MaintenanceChange()
            ):
                return self._operation_parts(mutation)

    def _creation_parts(self, creation: TopicCreation) -> tuple[list[Guard], list[Change]]:
        keys, topic, entry = self._keys, creation.topic, creation.entry
        guards: list[Guard] = [
            CreateRevision(keys.topic(topic), 0),
            CreateRevision(keys.topic_deletion(topic), 0),
        ]
        changes: list[Change] = [Put(keys.topic(topic), encode(entry))]
        if creation.assignment:
            by_hand = PartitionsAddition(entry.topic_id, 0, creation.assignment, entry.trace_id)
            guards.append(CreateRevision(keys.partition_addition(topic), 0))
            changes.append(Put(keys.partition_addition(topic), encode_intent(by_hand)))
        return guards, changes

    def _change_parts(
        self, change: TopicChange | FirstEpochRise
    ) -> tuple[list[Guard], list[Change]]:
        keys, topic = self._keys, change.topic
        guards: list[Guard] = [
            ModRevision(keys.topic(topic), change.revision),
            CreateRevision(keys.topic_deletion(topic), 0),
        ]
        changes: list[Change] = [Put(keys.topic(topic), encode(change.entry))]
        if isinstance(change, TopicChange) and change.intent is not None:
            guards.append(CreateRevision(keys.partition_addition(topic), 0))
            guards.append(CreateRevision(keys.partition_removal(topic), 0))
            is_addition = isinstance(change.intent, PartitionsAddition)
            key = keys.partition_addition(topic) if is_addition else keys.partition_removal(topic)
            changes.append(Put(key, encode_intent(change.intent)))
        return guards, changes

    def _commit_parts(self, commit: OperationCommit) -> tuple[list[Guard], list[Change]]:
        keys, entry = self._keys, commit.entry
        key = keys.operation(commit.operation_id)
        first = keys.operation_plan(commit.operation_id, 0)
        guards: list[Guard] = [CreateRevision(key, 0), ModRevision(first, commit.plan_revision)]
        changes: list[Change] = [Put(key, encode_operation(entry))]
        mark = BrokerMark(entry.requested_by, commit.operation_id)
        also = self._marking_parts(commit.marks, mark, commit.topics)
        return [*guards, *also[0]], [*changes, *also[1]]

    def _marking_parts(
        self, marks: Iterable[BrokerMarking], mark: BrokerMark, topics: Iterable[TopicRewrite]
    ) -> tuple[list[Guard], list[Change]]:
        keys = self._keys
        guards: list[Guard] = []
        changes: list[Change] = []
        for broker_id, marked, added_revision, removed_revision in marks:
            stands = {
                MarkedAs.ADDED: (keys.broker_addition(broker_id), added_revision),
                MarkedAs.REMOVED: (keys.broker_removal(broker_id), removed_revision),
            }
            for kind, (key, revision) in stands.items():
                guards.append(ModRevision(key, revision))
                if kind is marked:
                    changes.append(Put(key, encode_mark(mark)))
                elif revision:
                    changes.append(Delete(key))
        for topic, revision, entry in topics:
            guards.append(ModRevision(keys.topic(topic), revision))
            changes.append(Put(keys.topic(topic), encode(entry)))
        return guards, changes

    def _operation_parts(
        self,
        mutation: (
            PlanChunkWrite
            | OperationCommit
            | OperationUpdate
            | KeysRemoval
            | ThrottleChange
            | LevelChange
            | MaintenanceChange
        ),
    ) -> tuple[list[Guard], list[Change]]:
        keys = self._keys
        match mutation:
            case PlanChunkWrite(operation_id, chunk, moves, revision):
                key = keys.operation_plan(operation_id, chunk)
                return (
                    [CreateRevision(keys.operation(operation_id), 0), ModRevision(key, revision)],
                    [Put(key, encode_moves(moves))],
                )
            case OperationCommit():
                return self._commit_parts(mutation)
            case OperationUpdate(operation_id, revision, updated, caller, marks, topics):
                key = keys.operation(operation_id)
                also = self._marking_parts(marks, BrokerMark(caller.name), topics)
                return (
                    [ModRevision(key, revision), *also[0]],
                    [Put(key, encode_operation(updated)), *also[1]],
                )
            case KeysRemoval(guarded, others, absent):
                return (
                    [
                        *(ModRevision(key, revision) for key, revision in guarded),
                        *(CreateRevision(key, 0) for key in absent),
                    ],
                    [Delete(key) for key in (*(key for key, _ in guarded), *others)],
                )
            case MaintenanceChange(marked, unmarked, caller):
                mark = encode_mark(BrokerMark(caller.name))
                ended = [(keys.maintenance(broker_id), r) for broker_id, r in unmarked]
                return (
                    [ModRevision(key, r) for key, r in ended],
                    [
                        *(Put(keys.maintenance(broker_id), mark) for broker_id in marked),
                        *(Delete(key) for key, _ in ended),
                    ],
                )
            case ThrottleChange(bytes_per_second, revision):
                bound = encode_throttle(Throttle(bytes_per_second))
                return [ModRevision(keys.throttle, revision)], [Put(keys.throttle, bound)]
            case LevelChange(entry, level, revision, registered_revision):
                return (
                    [
                        ModRevision(keys.cluster, revision),
                        ModRevision(keys.last_registration, registered_revision),
                    ],
                    [Put(keys.cluster, encode(replace(entry, format_version=level)))],
                )

    def _departure_parts(self, departures: UnrecordedDepartures) -> list[Change]:
        keys = [self._keys.departure(broker_id) for broker_id, _ in departures]
        return [
            Delete(key) if departure is None else Put(key, encode_departure(departure))
            for key, (_, departure) in zip(keys, departures, strict=True)
        ]

    def _intent_parts(self, intent: RecoveryIntent) -> tuple[list[Guard], list[Change]]:
        keys = self._keys
        guards: list[Guard] = [ModRevision(keys.topic(intent.topic), intent.topic_revision)]
        changes: list[Change] = []
        for partition, revision, consent_revision in intent.partitions:
            key = keys.recovery(partition)
            guards.append(ModRevision(keys.leader_and_isr(partition), revision))
            guards.append(ModRevision(key, consent_revision))
            changes.append(Put(key, encode(intent.consent)))
        return guards, changes

    def _batch_parts(
        self, writes: Iterable[PartitionWrite], topic_guard: TopicGuard | None
    ) -> tuple[list[Guard], list[Change]]:
        guards: list[Guard] = []
        changes: list[Change] = []
        if topic_guard is not None:
            key = self._keys.topic(topic_guard.topic)
            guards.append(CreateRevision(key, topic_guard.create_revision))
        for partition, _, new, expected, consent_revision, *_ in writes:
            key = self._keys.leader_and_isr(partition)
            guards.append(ModRevision(key, expected))
            changes.append(Delete(key) if new is None else Put(key, encode_leader_and_isr(new)))
            if consent_revision:
                consent = self._keys.recovery(partition)
                guards.append(ModRevision(consent, consent_revision))
                changes.append(Delete(consent))
        return guards, changes


def outcome(transaction: Transaction, result: TransactionResult) -> list[Changed]:
    """What is known of the store after a transaction, in the form of watched changes."""
    if result.succeeded:
        return [_applied(change, result.revision) for change in transaction.changes]
    return [
        Changed(key, value, result.revision if value is None else value.mod_revision)
        for key, value in result.current.items()
    ]


def _applied(change: Change, revision: int) -> Changed:
    if isinstance(change, Delete):
        return Changed(change.key, None, revision)
    # The creation revision is that of a new key. For overwritten keys it is wrong, but only topics'
    # is ever read, and the context keeps that one.
    return Changed(change.key, KeyValue(change.key, change.value, revision, revision), revision)
