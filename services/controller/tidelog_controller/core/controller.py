"""The controller's core: event in, commands out; no I/O, no waiting.

Decide, persist, then apply and send. A decision becomes a transaction. Only after the store has
committed it does it enter the context and go to the brokers. A partition with a transaction in
flight is not decided again before its outcome is known. After every event, the partitions that it
affects are decided again from all that is known (`reconcile`). So no step depends on how the
controller learned something."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence

from tidelog.errors import ErrorCode
from tidelog.inspection.model import BrokerBacklog, ControllerState, StateRequest
from tidelog.state_changes.event import (
    Cause,
    Detail,
    Kind,
    Stage,
    broker_stopping,
)
from tidelog_controller.control.dispatch import Dispatch
from tidelog_controller.core.broker_telling import of_broker, of_fencing, of_unreachable_leader
from tidelog_controller.core.description import Reign, describe
from tidelog_controller.core.dirty_partitions import DirtyPartitions
from tidelog_controller.core.transaction_telling import TransactionTelling
from tidelog_controller.core.write_pace import INTERVALS, Intervals, WritePace
from tidelog_controller.policies.internal_topics import InternalTopic
from tidelog_controller.policies.leader_balance import LeaderBalancing
from tidelog_controller.requests.desk import AdminDesk
from tidelog_controller.state.broken_connections import (
    FAST_REMOVAL_WINDOW_MS,
    MAX_FAST_REMOVALS,
    BrokenConnections,
)
from tidelog_controller.state.commands import (
    CloseChannel,
    Command,
    Level,
    Log,
    OpenChannel,
    StepDown,
    Tell,
    TellEach,
    Transact,
)
from tidelog_controller.state.context import Context, ControllerIdentity
from tidelog_controller.state.departures import Departures
from tidelog_controller.state.events import (
    CRASHED,
    AdminRequest,
    CommandAnswered,
    CommandLost,
    ConnectionEnded,
    DialOutcome,
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
from tidelog_controller.state.known import (
    BrokerChanged,
    ConsentChanged,
    DeletionChanged,
    DepartureChanged,
    MaintenanceChanged,
    Malformed,
    PartitionChanged,
    PartitionsIntentChanged,
    Removal,
    TopicChanged,
)
from tidelog_controller.state.operations import DEFAULT_MAX_MOVES_PER_BROKER
from tidelog_controller.state.purposes import (
    DepartureRecord,
    PartitionBatch,
    PartitionWrite,
    RegistrationRemoval,
    TopicCreation,
    UnrecordedDepartures,
)
from tidelog_controller.state.transactions import Transactions, outcome
from tidelog_controller.state.unreachable_leaders import UnreachableLeaders
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import Departure
from tidelog_runtime.metadata.store import (
    MAX_TRANSACTION_CHANGES,
    Changed,
    KeyValue,
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
    ) -> None:
        self.context = Context(keys)
        self.context.operations.max_moves_per_broker = max_moves_per_broker
        self._keys = keys
        self._identity = identity
        self._transactions = Transactions(keys, identity)
        self._departures = Departures()
        self._dispatch = Dispatch(self.context, identity, command_timeout_ms, self._tell)
        self._telling = TransactionTelling(
            self.context, identity.controller_epoch, self._departures.last, self._tell
        )
        self._desk = AdminDesk(
            self.context,
            self._transactions,
            self._dispatch.controls,
            rng,
            internal_topics,
            self._departures.last,
            self._dispatch.descriptions,
            self._dispatch.measures,
            leader_balancing,
        )
        self._unreachable = UnreachableLeaders()
        self._failing_disks = FailingDisks()
        self.context.rejecting_disks = self._failing_disks.rejecting
        self._dirty = DirtyPartitions(
            self.context,
            self._transactions,
            self._dispatch.descriptions,
            self._unreachable,
            self._failing_disks,
            self._dispatch.is_acknowledged,
            identity.controller_epoch,
            self._dispatch.full_states_taken,
            WritePace(intervals),
        )
        self._broken = BrokenConnections()
        self._going_since_ms: dict[str, int] = {}  # by intent's key: first seen
        self._loaded = False
        self._early: list[AdminRequest] = []  # arrived before the state was loaded
        self._deposed = False
        # Touched partitions are left for which the last step had no room.
        self._judges_on = False
        self._now_ms = 0
        self._wall_ms = 0
        self._out: list[Command] = []

    def handle(self, event: Event, now_ms: int, wall_ms: int) -> list[Command]:
        """Returns the commands that follow from `event`; none after `StepDown`.

        `now_ms` never decreases; `wall_ms` is only reported, and no decision depends on it."""
        if self._deposed:
            return []
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._out = []
        self._dirty.touch(self._unreachable.advance(now_ms))
        self._dirty.touch(self._failing_disks.advance(now_ms))
        self._dirty.advance(now_ms)
        self._take(event)
        if not self._deposed:
            self.context.advance_operations(self._dispatch.receivers())
            self._begin(self._desk.advance(now_ms, wall_ms))
            self._dirty.touch_many(self.context.take_wanted_anew())
            self._judge()
            self._out += self._dispatch.due(now_ms, wall_ms)
            self._dispatch.tell_overdue(now_ms, wall_ms)
            self._record_departures()
        return self._out

    def wake_at_ms(self) -> int | None:
        """The time at which a `Tick` is due if no other event comes first; None: never."""
        if self.judges_on:
            return self._now_ms
        times = [
            self._desk.wake_at_ms(),
            self._dispatch.wake_at_ms(),
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
        reign = Reign(
            self.context,
            self._identity,
            self._dispatch,
            self._departures.last,
            self._going_since_ms,
            self._wall_ms,
        )
        return describe(reign, request, now_ms)

    @property
    def judges_on(self) -> bool:
        """Whether a `Tick` is due at once: an event may touch more than one step handles."""
        return self._judges_on or self._desk.has_more

    @property
    def is_loaded(self) -> bool:
        """Whether the cluster's state has been read from the store."""
        return self._loaded

    @property
    def transactions_in_flight(self) -> int:
        return len(self._transactions)

    def backlogs(self, now_ms: int) -> Sequence[BrokerBacklog]:
        return self._dispatch.backlogs(now_ms)

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
                self._connection_ended(event)
            case LeadersUnreachable(report):
                self._leaders_unreachable(report)
            case DiskReported(report):
                self._disk_reported(report)
            case PlanMade() | PlacesFound() | SnapshotRead():
                self._begin(self._desk.found(event, self._now_ms, self._wall_ms))
            case Tick():
                pass
            case request:
                self._request(request)

    def _request(self, request: AdminRequest) -> None:
        if not self._loaded:
            self._early.append(request)
            return
        self._begin(self._desk.take(request, self._now_ms, self._wall_ms))

    # Changes in the store.

    def _load(self, snapshot: Snapshot) -> None:
        self._check_reign(snapshot.items.get(self._keys.controller))
        self._absorb(Changed(item.key, item, item.mod_revision) for item in snapshot.items.values())
        self.context.watched_to(snapshot.revision)
        self._tell(
            Tell(
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
        malformed = set(self.context.malformed)
        self._absorb_each(changes)
        self._mended(self.context.topics_of(malformed - self.context.malformed))

    def _mended(self, topics: Collection[str]) -> None:
        """Decides topics again that became readable again, and sends their replicas."""
        for topic in sorted(topics):
            self._dirty.touch_topic(topic)
        if topics:
            for broker_id in self._dispatch.controls:
                self._dispatch.require_all(broker_id, self._now_ms, Cause.KEY_MENDED)

    def _absorb_each(self, changes: Iterable[Changed]) -> None:
        for change in changes:
            if change.key == self._keys.controller:
                self._check_reign(change.value)
                continue
            match self.context.absorb(change):
                case BrokerChanged() as changed:
                    self._broker_changed(changed, change.revision)
                case DepartureChanged(broker_id, departure):
                    self._departures.recorded(broker_id, departure)
                case TopicChanged() as changed:
                    self._topic_changed(changed, change.revision)
                case PartitionChanged() as changed:
                    self._partition_changed(changed)
                case MaintenanceChanged(broker_id, _):
                    self._dirty.touch_led_by(broker_id)
                case (
                    DeletionChanged() | PartitionsIntentChanged() | ConsentChanged()
                ) as changed_intent:
                    self._intent_changed(changed_intent, change.revision)
                case Malformed(key, problem):
                    fields = {"key": key, "problem": problem}
                    self._out.append(Log("metadata_malformed", fields, Level.WARNING))
                case None:
                    pass

    def _intent_changed(
        self,
        changed: DeletionChanged | PartitionsIntentChanged | ConsentChanged,
        revision: int,
    ) -> None:
        match changed:
            case ConsentChanged(partition, _):
                self._dirty.touch([partition])
            case DeletionChanged(topic, new):
                self._goes(self._keys.topic_deletion(topic), stands=new is not None)
                self._dirty.touch_topic(topic)
            case PartitionsIntentChanged(topic, before, after):
                self._goes(self._keys.partition_removal(topic), stands=isinstance(after, Removal))
                self._dirty.touch_resized(topic, before, after)
                if before is not None and after is None:
                    self._telling.intent_done(topic, before.entry, revision)

    def _goes(self, intent: str, *, stands: bool) -> None:
        if stands:
            self._going_since_ms.setdefault(intent, self._now_ms)
        else:
            self._going_since_ms.pop(intent, None)

    def _check_reign(self, held: KeyValue | None) -> None:
        if held is None or held.create_revision > self._identity.key_revision:
            self._step_down("the controller key has passed on")

    def _broker_changed(self, changed: BrokerChanged, revision: int) -> None:
        broker_id, old, new = changed
        if old is not None and (new is None or new.broker_epoch != old.broker_epoch):
            self._dirty.touch(self._dispatch.left(broker_id))
            self._unreachable.forget_broker(broker_id)
            self._failing_disks.forget_broker(broker_id)
            self._out.append(CloseChannel(broker_id, old.broker_epoch))
            departure = self._departures.left(old, new, self._wall_ms)
            self._tell(of_broker(Kind.BROKER_LEFT, old, revision, departure.cause))
            self._tell_acknowledged()
        if new is not None and (old is None or new.broker_epoch != old.broker_epoch):
            why = Cause.BROKER_JOINED if self._loaded else Cause.NEW_CONTROLLER
            self._dispatch.joined(broker_id, new.broker_epoch, self._now_ms, why)
            self._out.append(OpenChannel(broker_id, new.broker_epoch, new.registration.address))
            if self._loaded:
                # Brokers found at the start of a term get no event of their own: one counts them.
                why = Cause.REGISTERED if old is None else Cause.BROKER_RESTARTED
                self._tell(of_broker(Kind.BROKER_JOINED, new, revision, why))
        elif new is not None and not new.running:
            self._tell(
                of_broker(
                    Kind.BROKER_STOPPING,
                    new,
                    revision,
                    stage=Stage.RECEIVED,
                    change=broker_stopping(broker_id, new.broker_epoch),
                )
            )
        if old is None or new is None or new.broker_epoch != old.broker_epoch:
            for topic in self.context.unplaced.topics():
                self._dirty.touch_unplaced(topic)
        replicas = list(self.context.replicas_on(broker_id))
        # Elections come before changes of the ISR: no client can write until they are done.
        self._dirty.touch(p for p, held in replicas if held.state.leader == broker_id)
        self._dirty.touch(p for p, _ in replicas)

    def _topic_changed(self, changed: TopicChanged, revision: int) -> None:
        topic, old, new = changed
        if new is None and old is not None:
            self._telling.topic_gone(topic, old.entry.topic_id, revision)
        if new is not None:
            self._dirty.touch_unplaced(topic)
            # They determine the min ISR in force, and which removed partitions may lose their keys.
            if old is not None and (
                new.config != old.config
                or new.entry.first_leader_epoch != old.entry.first_leader_epoch
            ):
                self._dirty.touch_topic(topic)

    def _partition_changed(self, changed: PartitionChanged) -> None:
        partition, old, new = changed
        if new is not None:
            self._telling.applied(new.state.change, new.revision)
        self._dirty.touch([partition])
        self._dispatch.changed(partition, old, new, self._now_ms, is_news=self._loaded)

    # Decisions.

    def _judge(self) -> None:
        """Begins one batch of writes; the next one follows with the next step."""
        self._judges_on = False
        if not self._transactions.room_for_batch:
            return
        batch, is_last = self._dirty.next_batch(self._now_ms)
        if batch is not None:
            batch = self._telling.originated(batch, self._transactions.next_id, self._wall_ms)
            departures = self._to_record(batch.room)
            self._out.append(self._transactions.begin(batch._replace(departures=departures)))
        self._judges_on = not is_last and self._transactions.room_for_batch

    def _record_departures(self) -> None:
        """Writes the departures that no batch carries; no decision waits for them."""
        if self._transactions.has_batches or self._judges_on:
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
                purpose = self._transactions.purpose_of(command.id)
                self._telling.begun(command.id, purpose, self._wall_ms)
            self._out.append(command)

    def _end_transaction(
        self, transaction_id: int, result: TransactionResult, *, answered: bool
    ) -> None:
        purpose, transaction = self._transactions.end(transaction_id)
        self._absorb(outcome(transaction, result))
        if self._deposed:
            return
        self._telling.ended(transaction_id, purpose, result, answered=answered)
        if isinstance(purpose, TopicCreation):
            # The answer may arrive after all that the watch delivers.
            self._tell_acknowledged([purpose.entry.topic_id])
        if isinstance(purpose, PartitionBatch):
            self._end_batch(purpose.writes, result)

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
        self._dirty.refused(writes)

    # Answers of brokers.

    def _end_command(self, event: CommandAnswered | CommandLost | ReplicasDescribed) -> None:
        if not self._dispatch.awaits(event):
            return
        error = None if isinstance(event, CommandLost) else event.result.error
        if error is not None and error.code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._step_down(f"broker {event.broker_id} obeys a newer controller")
            return
        self._dirty.touch(self._dispatch.ended(event, self._now_ms))
        if isinstance(event, CommandAnswered):
            self._tell_acknowledged(answer[0] for answer in event.result.partitions)

    # Live leaders that are unreachable or have a failing disk.

    def _leaders_unreachable(self, report: UnreachableLeadersReport) -> None:
        """Decides the leader's partitions again with the new report and the current ISR.

        A later change of the ISR is decided with the reports of its time."""
        for leader in self._unreachable.reported(report, self.context.brokers):
            self._tell(of_unreachable_leader(leader, report.broker_id))
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

    # Crashes.

    def _connection_ended(self, event: ConnectionEnded) -> None:
        """Ends the registration if the dial's outcome shows that the process has ended.

        The transaction compares the creation revision, so it never removes a later incarnation."""
        broker_id, broker_epoch, dial, detection_ms = event
        broker = self.context.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return
        is_news = self._broken.is_news(broker_id, broker_epoch, dial, self._now_ms)
        if dial not in CRASHED:
            if is_news:
                details: dict[str, Detail] = {"dial": dial.value}
                accepted = dial is DialOutcome.ACCEPTED
                why = Cause.CONNECTION_LOST if accepted else Cause.NO_ANSWER
                self._tell(of_broker(Kind.CONNECTION_LOST, broker, cause=why, details=details))
            self._dispatch.require_all(broker_id, self._now_ms, Cause.CONNECTION_LOST)
            return
        self._departures.refused(broker_id, broker_epoch)
        departure = self._departures.judged(broker, None, self._wall_ms)
        removal = RegistrationRemoval(broker_id, broker_epoch, departure)
        if self._transactions.is_in_flight(removal):
            return
        fencing = of_fencing(broker, dial.value, detection_ms, self._wall_ms)
        if not self._broken.may_remove(broker_id, self._now_ms):
            if is_news:
                # Only the broker's lease decides.
                bound = {"removals": MAX_FAST_REMOVALS, "within_ms": FAST_REMOVAL_WINDOW_MS}
                details = {**fencing.details, **bound}
                self._tell(fencing._replace(stage=Stage.IGNORED, details=details))
            return
        command = self._transactions.begin(removal)
        self._telling.fencing(command.id, fencing)
        self._out.append(command)

    # Output.

    def _step_down(self, reason: str) -> None:
        if not self._deposed:
            self._deposed = True
            self._out.append(StepDown(reason))

    def _tell(self, told: Tell | TellEach) -> None:
        self._out.append(told)

    def _tell_acknowledged(self, topic_ids: Iterable[str] | None = None) -> None:
        self._telling.acknowledged(self._desk.topics.is_acknowledged, topic_ids)
