"""Events about the controller's transactions: the changes at their begin, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.inspection.model import NOT_KNOWN
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes.event import NO_BROKER, NO_REVISION, Cause, Change, Detail, Kind, Stage
from tidelog_controller.core.request_telling import asked_by, requested_by
from tidelog_controller.policies.causes import (
    Circumstances,
    cause_of,
    change_id,
    kind_of,
)
from tidelog_controller.state.commands import Tell, TellEach
from tidelog_controller.state.context import Context
from tidelog_controller.state.purposes import (
    DeletionIntent,
    MaintenanceChange,
    OperationCommit,
    OperationUpdate,
    PartitionBatch,
    PartitionWrite,
    Purpose,
    RecoveryIntent,
    RegistrationRemoval,
    ThrottleChange,
    TopicChange,
    TopicCreation,
)
from tidelog_runtime.metadata.schema import Departure, LeaderAndIsr
from tidelog_runtime.metadata.store import TransactionResult
from tidelog_runtime.metadata.topic_intents import PartitionsAddition, PartitionsRemoval
from tidelog_runtime.replica_control import ReplicaSummary

# Causes of changes that a client requested, under a trace of its own.
_ASKED_FOR = frozenset(
    {
        Cause.TOPIC_CREATED,
        Cause.TOPIC_DELETED,
        Cause.PARTITIONS_ADDED,
        Cause.PARTITIONS_REMOVED,
        Cause.CONSENT,
        Cause.REASSIGNED,
        Cause.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True)
class BatchStage:
    """One stage of a batch of partitions. `kinds` and `changes` have one entry for each write."""

    stage: Stage
    writes: Sequence[PartitionWrite]
    kinds: Sequence[Kind]
    changes: Sequence[Change]
    revision: int = NO_REVISION

    def __iter__(self) -> Iterator[Tell]:
        for write, kind, change in zip(self.writes, self.kinds, self.changes, strict=True):
            yield partition_told(write, kind, change, self.stage, self.revision)


def partition_told(
    write: PartitionWrite,
    kind: Kind,
    change: Change,
    stage: Stage,
    revision: int = NO_REVISION,
    cause: Cause | None = None,
) -> Tell:
    partition, old, new = write[:3]
    state = new or old
    assert state is not None, "a key that is not there is not deleted"
    return Tell(
        kind,
        stage,
        change,
        partition,
        "",
        state.topic_id,
        NO_BROKER,
        NO_REVISION,
        state.leader_epoch,
        revision,
        _details(write),
        cause,
    )


class TransactionTelling:
    """Emits the events of transactions.

    `departed`: by broker, its last incarnation whose end was detected.
    """

    def __init__(
        self,
        context: Context,
        controller_epoch: int,
        departed: Mapping[int, Departure],
        tell: Callable[[Tell | TellEach], None],
    ) -> None:
        self._context = context
        self._controller_epoch = controller_epoch
        self._departed = departed
        self._tell = tell
        # The events emitted as requested, by transaction.
        self._requested: dict[int, list[Tell]] = {}
        self._batches: dict[str, BatchStage] = {}  # by the id of their change
        self._creations: dict[str, Tell] = {}  # by topic id, until all brokers have acknowledged
        self._deletions: dict[str, Tell] = {}  # by topic id, until the topic is gone
        self._intents: dict[PartitionsAddition | PartitionsRemoval, Tell] = {}  # until done

    # Partitions.

    def originated(self, batch: PartitionBatch, number: int, wall_ms: int) -> PartitionBatch:
        """Returns the batch with a change in every state, and emits its `REQUESTED` events.

        `number`: the id that its transaction will have.
        """
        name = change_id(self._controller_epoch, number)
        known = Circumstances(self._context.live, self._departed)
        same: dict[tuple[Cause, str], Change] = {}
        changes: list[Change] = []
        kinds: list[Kind] = []
        writes: list[PartitionWrite] = []
        for write in batch.writes:
            partition, old, new = write[:3]
            deleting = self._context.is_going(partition)
            added = old is None and self._is_added(partition)
            special = deleting or added or write.deposes or write.consent_revision
            cause = (
                write.why
                if write.why is not Cause.NONE
                else cause_of(
                    old,
                    new,
                    known._replace(
                        deleting=deleting,
                        alone=partition.topic not in self._context.deletions,
                        added=added,
                        deposes=write.deposes,
                        consented=bool(write.consent_revision),
                    )
                    if special
                    else known,
                )
            )
            asked = self._trace_id(cause, partition) if cause in _ASKED_FOR else write.trace_id
            origin = (cause, asked)
            change = same.get(origin)
            if change is None:
                change = same[origin] = Change(name, cause, wall_ms, origin[1])
            kinds.append(kind_of(old, new, deleting=deleting))
            changes.append(change)
            writes.append(write if new is None else write.deciding(_stamped(old, new, change)))
        requested = BatchStage(Stage.REQUESTED, writes, kinds, changes)
        self._batches[name] = requested
        self._tell(TellEach(requested, len(writes)))
        return PartitionBatch(tuple(writes), batch.topic_guard)

    def _is_added(self, partition: TopicPartition) -> bool:
        addition = self._context.additions.get(partition.topic)
        return addition is not None and 0 < addition.entry.first <= partition.partition

    def _trace_id(self, cause: Cause, partition: TopicPartition) -> str:
        """The trace id of the request that caused the change; empty if there is none."""
        context = self._context
        match cause:
            case Cause.TOPIC_CREATED:
                return context.topics[partition.topic].entry.trace_id
            case Cause.TOPIC_DELETED:
                return context.deletions[partition.topic].trace_id
            case Cause.PARTITIONS_ADDED:
                return context.additions[partition.topic].entry.trace_id
            case Cause.PARTITIONS_REMOVED:
                return context.removals[partition.topic].entry.trace_id
            case Cause.CONSENT:
                return context.consents[partition].entry.trace_id
            case Cause.REASSIGNED | Cause.CANCELLED:
                # A begun move continues even after its operation is no longer known.
                wanted = context.wanted_moves.get(partition)
                return wanted.trace_id if wanted else ""
            case _:
                return ""

    def applied(self, change: Change, revision: int) -> None:
        """Reports a batch as completed once the key of any of its partitions has its change.

        The watch or the transaction's own answer may be first.
        """
        requested = self._batches.pop(change.id, None)
        if requested is None:
            return
        completed = replace(requested, stage=Stage.COMPLETED, revision=revision)
        self._tell(TellEach(completed, len(completed.writes)))

    def _end_batch(self, name: str, result: TransactionResult, refused: Cause) -> None:
        """Reports the writes of a batch as failed if its changes were not found in the store.

        A deleted key cannot show a change: it counts as completed if the key is gone.
        """
        if result.succeeded:
            self.applied(Change(name), result.revision)
            return
        requested = self._batches.pop(name, None)
        if requested is None:
            return
        for write, kind, change in zip(
            requested.writes, requested.kinds, requested.changes, strict=True
        ):
            gone = write.new is None and self._context.partition(write.partition) is None
            stage = Stage.COMPLETED if gone else Stage.FAILED
            told = partition_told(write, kind, change, stage, cause=None if gone else refused)
            self._tell(told)

    # Intents, and registrations of brokers that seem dead.

    def begun(self, number: int, purpose: Purpose, wall_ms: int) -> None:
        name = change_id(self._controller_epoch, number)
        requested = requested_by(purpose, Change(name, Cause.REQUESTED, wall_ms))
        if requested:
            self._requested[number] = requested
        for told in requested:
            self._tell(told)

    def fencing(self, number: int, told: Tell) -> None:
        """Reports the removal of a registration; the change of `told` has no id yet."""
        name = change_id(self._controller_epoch, number)
        requested = told._replace(change=told.change._replace(id=name))
        self._requested[number] = [requested]
        self._tell(requested)

    def ended(
        self, number: int, purpose: Purpose, result: TransactionResult, *, answered: bool
    ) -> None:
        """Reports the outcome of a transaction after it was absorbed.

        `answered`: false if the outcome is only read from the keys, which may be too early.
        """
        refused = Cause.CONFLICT if answered else Cause.TIMEOUT
        if isinstance(purpose, PartitionBatch):
            self._end_batch(change_id(self._controller_epoch, number), result, refused)
            return
        told = self._requested.pop(number, [])
        applied = result.succeeded or self._is_applied(purpose, answered=answered)
        if applied and isinstance(purpose, DeletionIntent):
            # Completed once the topic is gone.
            self._deletions[purpose.topic_id] = told[0]
            return
        if applied and isinstance(purpose, TopicCreation):
            self._creations[purpose.entry.topic_id] = told[0]
        if applied and isinstance(purpose, TopicChange) and purpose.intent is not None:
            self._intents[purpose.intent] = told[0]
            if isinstance(purpose.intent, PartitionsRemoval):
                # Completed once the partitions are gone.
                return
        for requested in told:
            if applied:
                self._tell(requested.at(Stage.COMPLETED, result.revision))
            else:
                self._tell(requested.at(Stage.FAILED, cause=refused))

    def topic_gone(self, topic: str, topic_id: str, revision: int) -> None:
        """Reports the end of a topic.

        The caller is known only if this controller took the request.
        """
        self._creations.pop(topic_id, None)
        told = self._deletions.pop(topic_id, None)
        if told is None:
            deletion = self._context.deletions.get(topic)
            trace_id = deletion.trace_id if deletion else ""
            change = Change(cause=Cause.REQUESTED, trace_id=trace_id)
            told = Tell(Kind.TOPIC_DELETION, Stage.COMPLETED, change, None, topic, topic_id)
        self._tell(told.at(Stage.COMPLETED, revision))

    def intent_done(
        self, topic: str, intent: PartitionsAddition | PartitionsRemoval, revision: int
    ) -> None:
        """Reports an addition that all live brokers acknowledged, or a removal that is complete.

        The initial partitions of a topic have no event of their own: its creation has one.
        """
        told = self._intents.pop(intent, None)
        removed = isinstance(intent, PartitionsRemoval)
        if told is None and (removed or intent.first):
            change = Change(cause=Cause.REQUESTED, trace_id=intent.trace_id)
            kind = Kind.PARTITIONS_REMOVAL if removed else Kind.PARTITIONS_ADDITION
            told = Tell(kind, Stage.COMPLETED, change, None, topic, intent.topic_id)
        if told is not None:
            self._tell(told.at(Stage.COMPLETED if removed else Stage.ACKNOWLEDGED, revision))

    def acknowledged(
        self, is_acknowledged: Callable[[str, str], bool], topic_ids: Iterable[str] | None = None
    ) -> None:
        """Reports creations that every broker has acknowledged by now.

        They are reported whether or not a caller still waits for the reply. `topic_ids` None:
        checks all creations. `is_acknowledged` takes a topic's name and id.
        """
        if not self._creations:
            return
        for topic_id in dict.fromkeys(self._creations if topic_ids is None else topic_ids):
            created = self._creations.get(topic_id)
            if created is not None and is_acknowledged(created.topic, topic_id):
                del self._creations[topic_id]
                self._tell(created.at(Stage.ACKNOWLEDGED))

    def _is_applied(self, purpose: Purpose, *, answered: bool) -> bool:
        """Whether a transaction without an answer was applied, as far as its keys show."""
        match purpose:
            case TopicChange(topic, _, entry):
                held = self._context.topics.get(topic)
                return held is not None and held.entry == entry
            case TopicCreation(topic, entry):
                held = self._context.topics.get(topic)
                return held is not None and held.entry.topic_id == entry.topic_id
            case DeletionIntent(topic, topic_id, _):
                deletion = self._context.deletions.get(topic)
                return deletion is not None and deletion.topic_id == topic_id
            case RecoveryIntent(_, _, consent, partitions):
                consents = [self._context.consents.get(name) for name, _, _ in partitions]
                return all(c is not None and c.entry == consent for c in consents)
            case OperationCommit(operation_id, entry) | OperationUpdate(operation_id, _, entry):
                operation = self._context.operations.held.get(operation_id)
                return operation is not None and operation.entry == entry
            case MaintenanceChange(marked, unmarked):
                marks = self._context.maintenance
                ended = all(broker_id not in marks for broker_id, _ in unmarked)
                return ended and all(broker_id in marks for broker_id in marked)
            case ThrottleChange(bytes_per_second):
                return self._context.throttle.bytes_per_second == bytes_per_second
            case RegistrationRemoval(broker_id, broker_epoch):
                # A rejection means that another transaction ended this incarnation.
                broker = self._context.brokers.get(broker_id)
                ended = broker is None or broker.broker_epoch != broker_epoch
                return ended and not answered
            case _:
                return False


def _details(write: PartitionWrite) -> dict[str, Detail]:
    """Returns leaders and ISRs before and after, and the caller that requested another leader.

    For an unclean election also what the logs were known to hold.
    """
    _, old, new = write[:3]
    if new is None:
        return {}
    if old is None:
        return {
            "replicas": list(new.replicas),
            "leader": new.leader,
            "isr": [member[0] for member in new.isr],
        }
    details: dict[str, Detail] = {
        "leader_before": old.leader,
        "leader": new.leader,
        "isr_before": [member[0] for member in old.isr],
        "isr": [member[0] for member in new.isr],
        **asked_by(write.caller),
    }
    if new.moving != old.moving:
        details |= _move_details(old, new)
    if new.eligible:
        details["eligible"] = [member[0] for member in new.eligible]
    if write.logs is not None:
        details["logs"] = [
            _log_end(broker_id, write.logs[broker_id]) for broker_id in sorted(write.logs)
        ]
        if new.unclean_lost_records != NOT_KNOWN:
            details["lost_records"] = new.unclean_lost_records
    return details


def _move_details(old: LeaderAndIsr, new: LeaderAndIsr) -> dict[str, Detail]:
    moving = new.moving or old.moving
    if moving is None:
        return {}
    return {
        "operation": moving.operation,
        "original": list(moving.original),
        "target": list(moving.target),
        "replicas": list(new.replicas),
    }


def _log_end(broker_id: int, log: ReplicaSummary | None) -> str:
    if log is None:
        return f"broker {broker_id} has no log"
    epoch = f"epoch {log.epochs[-1][0]}" if log.epochs else "no epoch"
    end = f"broker {broker_id} ends at {log.log_end_offset} in {epoch}"
    before = log.before_cut
    return end if before is None else f"{end}, and ended at {before.log_end_offset} before a cut"


def _stamped(old: LeaderAndIsr | None, new: LeaderAndIsr, change: Change) -> LeaderAndIsr:
    """Returns the state with its change, and with the time if it is an unclean election.

    Later changes of the ISR keep that time.
    """
    stamped = new.with_change(change)
    is_new = old is None or old.leader_epoch < new.leader_epoch
    if is_new and NO_EPOCH < new.leader_epoch == new.unclean_leader_epoch:
        return replace(stamped, unclean_elected_at_ms=change.requested_at_ms)
    return stamped
