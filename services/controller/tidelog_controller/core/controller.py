"""The controller's core: event in, commands out; no I/O, no waiting.

Decide, persist, then apply and send. A decision becomes a transaction. Only after the store has
committed it does it enter the context and go to the brokers. A partition with a transaction in
flight is not decided again before its outcome is known. After every event, the partitions that it
affects are decided again from all that is known (`reconcile`). So no step depends on how the
controller learned something."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from tidelog.errors import ErrorCode
from tidelog.feature_levels import SUPPORTED, LevelRange
from tidelog.inspection.state_reports import BrokerBacklog, ControllerState, StateRequest
from tidelog.state_changes.event import Kind, Stage
from tidelog_controller.control.command_dispatcher import CommandDispatcher
from tidelog_controller.core.broker_events import unreachable_leader_event
from tidelog_controller.core.broker_fencing import BrokerFencing
from tidelog_controller.core.change_origins import ChangeOrigins
from tidelog_controller.core.controller_description import ControllerTerm, describe
from tidelog_controller.core.dirty_partitions import DirtyPartitions
from tidelog_controller.core.store_changes import StoreChanges
from tidelog_controller.core.transaction_events import TransactionEvents
from tidelog_controller.core.write_pace import INTERVALS, Intervals, WritePace
from tidelog_controller.policies.internal_topics import InternalTopic
from tidelog_controller.policies.leader_balance import LeaderBalancing
from tidelog_controller.requests.request_router import AdminRequestRouter
from tidelog_controller.state.commands import Command, EmitEvent, EmitEvents, StepDown, Transact
from tidelog_controller.state.context import Context, ControllerIdentity
from tidelog_controller.state.departures import Departures
from tidelog_controller.state.events import (
    AdminRequest,
    CommandAnswered,
    CommandLost,
    ConnectionEnded,
    DiskReported,
    Event,
    KeysRead,
    LeadersUnreachable,
    Loaded,
    OutcomeUnknown,
    PlacesFound,
    PlanMade,
    ReplicasDescribed,
    SnapshotRead,
    StoreChanged,
    Tick,
    Transacted,
)
from tidelog_controller.state.failing_disks import FailingDisks
from tidelog_controller.state.mutations import (
    DepartureRecord,
    PartitionBatch,
    PartitionWrite,
    TopicCreation,
    UnrecordedDepartures,
)
from tidelog_controller.state.operation_registry import DEFAULT_MAX_MOVES_PER_BROKER
from tidelog_controller.state.transactions import Transactions, outcome
from tidelog_controller.state.unreachable_leaders import UnreachableLeaders
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import Departure
from tidelog_runtime.metadata.store import (
    MAX_TRANSACTION_CHANGES,
    Changed,
    Snapshot,
    TransactionResult,
)


class Controller:
    """One controller term. Deterministic: equal events, times and `rng` give equal commands."""

    def __init__(
        self,
        keys: Keys,
        identity: ControllerIdentity,
        rng: random.Random,
        *,
        command_timeout_ms: int,
        internal_topics: Sequence[InternalTopic] = (),
        max_moves_per_broker: int = DEFAULT_MAX_MOVES_PER_BROKER,
        leader_balancing: LeaderBalancing | None = None,
        intervals: Intervals = INTERVALS,
        levels: LevelRange = SUPPORTED,
    ) -> None:
        self.context = Context(keys)
        self.context.levels.own = levels
        self.context.operations.max_moves_per_broker = max_moves_per_broker
        self._keys = keys
        self._identity = identity
        self._transactions = Transactions(keys, identity)
        self._departures = Departures()
        self._dispatcher = CommandDispatcher(self.context, identity, command_timeout_ms, self._emit)
        self._origins = ChangeOrigins(
            self.context, identity.controller_epoch, self._departures.last
        )
        self._transaction_events = TransactionEvents(
            self.context, identity.controller_epoch, self._emit
        )
        self._router = AdminRequestRouter(
            self.context,
            self._transactions,
            self._dispatcher.controls,
            rng,
            internal_topics,
            self._departures.last,
            self._dispatcher.descriptions,
            self._dispatcher.move_progress,
            leader_balancing,
        )
        self._unreachable = UnreachableLeaders()
        self._failing_disks = FailingDisks()
        self.context.rejecting_disks = self._failing_disks.rejecting
        self._dirty = DirtyPartitions(
            self.context,
            self._transactions,
            self._dispatcher.descriptions,
            self._unreachable,
            self._failing_disks,
            self._dispatcher.is_acknowledged,
            identity.controller_epoch,
            self._dispatcher.full_states_acknowledged,
            WritePace(intervals),
        )
        self._fencing = BrokerFencing(
            self.context,
            self._transactions,
            self._departures,
            self._dispatcher,
            self._transaction_events,
            self._emit,
        )
        self._changes = self._store_changes()
        self._loaded = False
        self._early: list[AdminRequest] = []  # arrived before the state was loaded
        self._deposed = False
        # Touched partitions are left for which the last step had no room.
        self._has_more_decisions = False
        self._now_ms = 0
        self._wall_ms = 0
        self._out: list[Command] = []

    def _store_changes(self) -> StoreChanges:
        return StoreChanges(
            self._keys,
            self._identity,
            self.context,
            self._dispatcher,
            self._dirty,
            self._departures,
            self._unreachable,
            self._failing_disks,
            self._transaction_events,
            is_acknowledged=self._router.topics.is_acknowledged,
            step_down=self._step_down,
            command=self._command,
            emit=self._emit,
        )

    def handle(self, event: Event, now_ms: int, wall_ms: int) -> list[Command]:
        """Returns the commands that follow from `event`; none after `StepDown`.

        `now_ms` never decreases; `wall_ms` is only reported, and no decision depends on it."""
        if self._deposed:
            return []
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._out = []
        self._changes.advance(now_ms, wall_ms)
        self._dirty.touch(self._unreachable.advance(now_ms))
        self._dirty.touch(self._failing_disks.advance(now_ms))
        self._dirty.advance(now_ms)
        self._take(event)
        if not self._deposed:
            self.context.advance_operations(self._dispatcher.receivers())
            self._begin(self._router.advance(now_ms, wall_ms))
            self._dirty.touch_many(self.context.drain_retargeted())
            self._decide()
            self._out += self._dispatcher.due(now_ms, wall_ms)
            self._dispatcher.emit_overdue(now_ms, wall_ms)
            self._record_departures()
        return self._out

    def wake_at_ms(self) -> int | None:
        """The time at which a `Tick` is due if no other event comes first; None: never."""
        if self.has_more_decisions:
            return self._now_ms
        times = [
            self._router.wake_at_ms(),
            self._dispatcher.wake_at_ms(),
            self._unreachable.wake_at_ms(),
            self._failing_disks.wake_at_ms(),
            self._dirty.wake_at_ms(self._now_ms),
        ]
        return min((time for time in times if time is not None), default=None)

    @property
    def departed(self) -> Mapping[int, Departure]:
        """The last ended incarnation of each broker, whether or not the broker is back."""
        return self._departures.last

    def describe(self, request: StateRequest, now_ms: int) -> ControllerState:
        """Describes the controller's state without changing it."""
        term = ControllerTerm(
            self.context,
            self._identity,
            self._dispatcher,
            self._departures.last,
            self._changes.deletion_seen_at_ms,
            self._wall_ms,
        )
        return describe(term, request, now_ms)

    @property
    def has_more_decisions(self) -> bool:
        """Whether a `Tick` is due at once: an event may touch more than one step handles."""
        return self._has_more_decisions or self._router.has_more

    @property
    def is_loaded(self) -> bool:
        """Whether the cluster's state has been read from the store."""
        return self._loaded

    @property
    def transactions_in_flight(self) -> int:
        return len(self._transactions)

    def backlogs(self, now_ms: int) -> Sequence[BrokerBacklog]:
        return self._dispatcher.backlogs(now_ms)

    def _take(self, event: Event) -> None:
        match event:
            case Loaded(snapshot):
                self._load(snapshot)
            case StoreChanged(changes):
                self._absorb(changes)
                self.context.watched_to(max((c.revision for c in changes), default=0))
            case Transacted(transaction_id, result):
                self._end_transaction(transaction_id, result, answered=True)
            case KeysRead(transaction_id, revision, current):
                # Treated like a failure: the keys read show whether it was applied.
                found = TransactionResult(False, revision, current)
                self._end_transaction(transaction_id, found, answered=False)
            case OutcomeUnknown(transaction_id):
                self._out.append(self._transactions.outcome_unknown(transaction_id))
            case CommandAnswered() | CommandLost() | ReplicasDescribed():
                self._end_command(event)
            case ConnectionEnded():
                self._out += self._fencing.connection_ended(event, self._now_ms, self._wall_ms)
            case LeadersUnreachable(report):
                self._leaders_unreachable(report)
            case DiskReported(report):
                self._disk_reported(report)
            case PlanMade() | PlacesFound() | SnapshotRead():
                self._begin(self._router.handle_result(event, self._now_ms, self._wall_ms))
            case Tick():
                pass
            case request:
                self._request(request)

    def _request(self, request: AdminRequest) -> None:
        if not self._loaded:
            self._early.append(request)
            return
        self._begin(self._router.handle(request, self._now_ms, self._wall_ms))

    # Changes in the store.

    def _load(self, snapshot: Snapshot) -> None:
        self._changes.check_term(snapshot.items.get(self._keys.controller))
        self._absorb(Changed(item.key, item, item.mod_revision) for item in snapshot.items.values())
        self.context.watched_to(snapshot.revision)
        self._emit(
            EmitEvent(
                Kind.CONTROLLER_LOADED,
                Stage.COMPLETED,
                revision=snapshot.revision,
                details={
                    "brokers": sorted(self.context.brokers),
                    "topics": len(self.context.topics),
                    "partitions": self.context.partition_count,
                    "deletions": len(self.context.deletions),
                },
            )
        )
        self._loaded = True
        early, self._early = self._early, []
        for request in early:
            self._request(request)

    def _absorb(self, changes: Iterable[Changed]) -> None:
        self._changes.absorb(changes, is_loaded=self._loaded)

    # Decisions.

    def _decide(self) -> None:
        """Begins one batch of writes; the next one follows with the next step."""
        self._has_more_decisions = False
        if not self._transactions.room_for_batch:
            return
        batch, is_last = self._dirty.next_batch(self._now_ms)
        if batch is not None:
            transaction_id = self._transactions.next_id
            batch = self._origins.attach(batch, transaction_id, self._wall_ms)
            self._transaction_events.batch_requested(transaction_id, batch)
            departures = self._to_record(batch.room)
            self._out.append(self._transactions.begin(batch._replace(departures=departures)))
        self._has_more_decisions = not is_last and self._transactions.room_for_batch

    def _record_departures(self) -> None:
        """Writes the departures that no batch carries; no decision waits for them."""
        if self._transactions.has_batches or self._has_more_decisions:
            return
        departures = self._to_record(MAX_TRANSACTION_CHANGES)
        if departures:
            self._out.append(self._transactions.begin(DepartureRecord(departures)))

    def _to_record(self, limit: int) -> UnrecordedDepartures:
        """Returns departures to store, so that the next controller knows them, too."""
        unrecorded = self._departures.unrecorded(limit)
        return () if self._transactions.records_departures else unrecorded

    def _begin(self, commands: Iterable[Command]) -> None:
        """Emits the commands of requests, and events of their transactions."""
        for command in commands:
            if isinstance(command, Transact):
                mutation = self._transactions.mutation_of(command.id)
                self._transaction_events.requested(command.id, mutation, self._wall_ms)
            self._out.append(command)

    def _end_transaction(
        self, transaction_id: int, result: TransactionResult, *, answered: bool
    ) -> None:
        mutation, transaction = self._transactions.end(transaction_id)
        self._absorb(outcome(transaction, result))
        if self._deposed:
            return
        self._transaction_events.ended(transaction_id, mutation, result, answered=answered)
        if isinstance(mutation, TopicCreation):
            # The answer may arrive after all that the watch delivers.
            self._emit_acknowledged([mutation.entry.topic_id])
        if isinstance(mutation, PartitionBatch):
            self._end_batch(mutation.writes, result)

    def _end_batch(self, writes: Iterable[PartitionWrite], result: TransactionResult) -> None:
        for write in writes:
            held = self.context.partition(write.partition)
            if write.deposes and held is not None and held.state == write.new:
                self._unreachable.deposed(write.partition)
            if write.leaves_disk and held is not None and held.state == write.new:
                self._failing_disks.transferred(write.partition)
        if result.succeeded:
            self._dirty.touch(write.partition for write in writes)
            return
        self._dirty.rejected(writes)

    # Answers of brokers.

    def _end_command(self, event: CommandAnswered | CommandLost | ReplicasDescribed) -> None:
        if not self._dispatcher.awaits(event):
            return
        error = None if isinstance(event, CommandLost) else event.result.error
        if error is not None and error.code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._step_down(f"broker {event.broker_id} obeys a newer controller")
            return
        self._dirty.touch(self._dispatcher.ended(event, self._now_ms))
        if isinstance(event, CommandAnswered):
            self._emit_acknowledged(answer[0] for answer in event.result.partitions)

    # Live leaders that are unreachable or have a failing disk.

    def _leaders_unreachable(self, report: UnreachableLeadersReport) -> None:
        """Decides the leader's partitions again with the new report and the current ISR.

        A later change of the ISR is decided with the reports of its time."""
        for leader in self._unreachable.reported(report, self.context.brokers):
            self._emit(unreachable_leader_event(leader, report.broker_id))
            self._dirty.touch(
                partition
                for partition, held in self.context.replicas_on(leader.broker_id)
                if held.state.leader == leader.broker_id and report.broker_id in held.state.replicas
            )

    def _disk_reported(self, report: DiskReport) -> None:
        """Decides with every report: a successor may have come into sync since the last one."""
        self._dirty.touch(
            failing.partition
            for failing in self._failing_disks.reported(report, self.context.brokers)
        )

    # Output.

    def _step_down(self, reason: str) -> None:
        if not self._deposed:
            self._deposed = True
            self._out.append(StepDown(reason))

    def _command(self, command: Command) -> None:
        self._out.append(command)

    def _emit(self, event: EmitEvent | EmitEvents) -> None:
        self._out.append(event)

    def _emit_acknowledged(self, topic_ids: Iterable[str] | None = None) -> None:
        self._transaction_events.acknowledged(self._router.topics.is_acknowledged, topic_ids)
