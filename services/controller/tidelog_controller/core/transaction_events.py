"""Events about the controller's transactions: the changes at their begin, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.state_changes.event import NO_BROKER, NO_REVISION, Cause, Change, Detail, Kind, Stage
from tidelog_controller.core.request_events import caller_details, requested_by
from tidelog_controller.policies.causes import (
    DELETION_CAUSES,
    change_id,
    kind_of,
)
from tidelog_controller.state.commands import EmitEvent, EmitEvents
from tidelog_controller.state.context import Context
from tidelog_controller.state.mutations import (
    DeletionIntent,
    LevelChange,
    MaintenanceChange,
    Mutation,
    OperationCommit,
    OperationUpdate,
    PartitionBatch,
    PartitionWrite,
    RecoveryIntent,
    RegistrationRemoval,
    ThrottleChange,
    TopicChange,
    TopicCreation,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr
from tidelog_runtime.metadata.store import TransactionResult
from tidelog_runtime.metadata.topic_intents import PartitionsAddition, PartitionsRemoval
from tidelog_runtime.replica_control import ReplicaSummary


@dataclass(frozen=True, slots=True)
class BatchStage:
    """One stage of a batch of partitions; its events are created when it is iterated."""

    stage: Stage
    writes: Sequence[PartitionWrite]
    revision: int = NO_REVISION

    def __iter__(self) -> Iterator[EmitEvent]:
        for write in self.writes:
            yield partition_event(write, self.stage, self.revision)


def partition_event(
    write: PartitionWrite,
    stage: Stage,
    revision: int = NO_REVISION,
    cause: Cause | None = None,
) -> EmitEvent:
    partition, old, new = write[:3]
    state = new or old
    assert state is not None, "a key that is not there is not deleted"
    deleting = write.change.cause in DELETION_CAUSES
    return EmitEvent(
        kind_of(old, new, deleting=deleting),
        stage,
        write.change,
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


class TransactionEvents:
    """Emits the events of transactions."""

    def __init__(
        self,
        context: Context,
        controller_epoch: int,
        emit: Callable[[EmitEvent | EmitEvents], None],
    ) -> None:
        self._context = context
        self._controller_epoch = controller_epoch
        self._emit = emit
        # The events emitted as requested, by transaction.
        self._requested: dict[int, list[EmitEvent]] = {}
        self._batches: dict[str, BatchStage] = {}  # by the id of their change
        # By topic id: creations until acknowledged by all brokers, deletions until completed.
        self._creations: dict[str, EmitEvent] = {}
        self._deletions: dict[str, EmitEvent] = {}
        self._intents: dict[PartitionsAddition | PartitionsRemoval, EmitEvent] = {}  # until done

    # Partitions.

    def batch_requested(self, transaction_id: int, batch: PartitionBatch) -> None:
        requested = BatchStage(Stage.REQUESTED, batch.writes)
        self._batches[change_id(self._controller_epoch, transaction_id)] = requested
        self._emit(EmitEvents(requested, len(batch.writes)))

    def applied(self, change: Change, revision: int) -> None:
        """Reports a batch as completed once the key of any of its partitions has its change.

        The watch or the transaction's own answer may be first.
        """
        requested = self._batches.pop(change.id, None)
        if requested is None:
            return
        completed = replace(requested, stage=Stage.COMPLETED, revision=revision)
        self._emit(EmitEvents(completed, len(completed.writes)))

    def _end_batch(self, name: str, result: TransactionResult, failure: Cause) -> None:
        """Reports the writes of a batch as failed if its changes were not found in the store.

        A deleted key cannot show a change: it counts as completed if the key is gone.
        """
        if result.succeeded:
            self.applied(Change(name), result.revision)
            return
        requested = self._batches.pop(name, None)
        if requested is None:
            return
        for write in requested.writes:
            gone = write.new is None and self._context.partition(write.partition) is None
            stage = Stage.COMPLETED if gone else Stage.FAILED
            self._emit(partition_event(write, stage, cause=None if gone else failure))

    # Intents, and registrations of brokers that seem dead.

    def requested(self, number: int, mutation: Mutation, wall_ms: int) -> None:
        name = change_id(self._controller_epoch, number)
        requested = requested_by(mutation, Change(name, Cause.REQUESTED, wall_ms))
        if requested:
            self._requested[number] = requested
        for event in requested:
            self._emit(event)

    def fencing_requested(self, number: int, event: EmitEvent) -> None:
        """Reports the removal of a registration; the change of `event` has no id yet."""
        name = change_id(self._controller_epoch, number)
        requested = event._replace(change=event.change._replace(id=name))
        self._requested[number] = [requested]
        self._emit(requested)

    def ended(
        self, number: int, mutation: Mutation, result: TransactionResult, *, answered: bool
    ) -> None:
        """Reports the outcome of a transaction after it was absorbed.

        `answered`: false if the outcome is only read from the keys, which may be too early.
        """
        failure = Cause.CONFLICT if answered else Cause.TIMEOUT
        if isinstance(mutation, PartitionBatch):
            self._end_batch(change_id(self._controller_epoch, number), result, failure)
            return
        events = self._requested.pop(number, [])
        applied = result.succeeded or self._is_applied(mutation, answered=answered)
        if applied and isinstance(mutation, DeletionIntent):
            # Completed once the topic is gone.
            self._deletions[mutation.topic_id] = events[0]
            return
        if applied and isinstance(mutation, TopicCreation):
            self._creations[mutation.entry.topic_id] = events[0]
        if applied and isinstance(mutation, TopicChange) and mutation.intent is not None:
            self._intents[mutation.intent] = events[0]
            if isinstance(mutation.intent, PartitionsRemoval):
                # Completed once the partitions are gone.
                return
        for event in events:
            if applied:
                self._emit(event.at(Stage.COMPLETED, result.revision))
            else:
                self._emit(event.at(Stage.FAILED, cause=failure))

    def topic_gone(self, topic: str, topic_id: str, revision: int) -> None:
        """Reports the end of a topic.

        The caller is known only if this controller took the request.
        """
        self._creations.pop(topic_id, None)
        event = self._deletions.pop(topic_id, None)
        if event is None:
            deletion = self._context.deletions.get(topic)
            trace_id = deletion.trace_id if deletion else ""
            change = Change(cause=Cause.REQUESTED, trace_id=trace_id)
            event = EmitEvent(Kind.TOPIC_DELETION, Stage.COMPLETED, change, None, topic, topic_id)
        self._emit(event.at(Stage.COMPLETED, revision))

    def intent_done(
        self, topic: str, intent: PartitionsAddition | PartitionsRemoval, revision: int
    ) -> None:
        """Reports an addition that all live brokers acknowledged, or a removal that is complete.

        The initial partitions of a topic have no event of their own: its creation has one.
        """
        event = self._intents.pop(intent, None)
        removed = isinstance(intent, PartitionsRemoval)
        if event is None and (removed or intent.first):
            change = Change(cause=Cause.REQUESTED, trace_id=intent.trace_id)
            kind = Kind.PARTITIONS_REMOVAL if removed else Kind.PARTITIONS_ADDITION
            event = EmitEvent(kind, Stage.COMPLETED, change, None, topic, intent.topic_id)
        if event is not None:
            self._emit(event.at(Stage.COMPLETED if removed else Stage.ACKNOWLEDGED, revision))

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
                self._emit(created.at(Stage.ACKNOWLEDGED))

    def _is_applied(self, mutation: Mutation, *, answered: bool) -> bool:
        """Whether a transaction without an answer was applied, as far as its keys show."""
        match mutation:
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
            case LevelChange(_, level):
                return self._context.levels.level == level
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
        **caller_details(write.caller),
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
