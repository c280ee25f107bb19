"""The controller's core: event in, commands out; no I/O, no waiting.

Decide, persist, then apply and send: a decision becomes a transaction, and only when
the store has taken it does it become knowledge and go to the brokers. A partition with
a transaction in flight is not decided again before its outcome is known. After every
event, what the event touched is judged anew against all that is known (`reconcile`),
so that no step depends on how the controller came to know something.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from tidelog.errors import ErrorCode
from tidelog.inspection.model import BrokerBacklog, ControllerState, StateRequest
from tidelog_controller.control.dispatch import Dispatch
from tidelog_controller.core.batch_report import told
from tidelog_controller.core.description import describe
from tidelog_controller.core.dirty_partitions import DirtyPartitions
from tidelog_controller.policies.internal_topics import InternalTopic
from tidelog_controller.requests.recovery_admin import RecoveryAdmin
from tidelog_controller.requests.topic_admin import TopicAdmin
from tidelog_controller.state.commands import (
    CloseChannel,
    Command,
    Level,
    Log,
    OpenChannel,
    StepDown,
)
from tidelog_controller.state.context import (
    BrokerChanged,
    ConsentChanged,
    Context,
    ControllerIdentity,
    DeletionChanged,
    Malformed,
    PartitionChanged,
    TopicChanged,
)
from tidelog_controller.state.events import (
    CRASHED,
    AdminRequest,
    CommandAnswered,
    CommandLost,
    ConnectionEnded,
    CreateTopic,
    DeleteTopic,
    Event,
    KeysRead,
    LeadersUnreachable,
    Loaded,
    OutcomeUnknown,
    RecoverPartitions,
    ReplicasDescribed,
    StoreChanged,
    Tick,
    Transacted,
)
from tidelog_controller.state.transactions import (
    PartitionBatch,
    PartitionWrite,
    RegistrationRemoval,
    Transactions,
    outcome,
)
from tidelog_controller.state.unreachable_leaders import UnreachableLeaders
from tidelog_runtime.leader_reports import UnreachableLeadersReport
from tidelog_runtime.metadata.schema import Keys
from tidelog_runtime.metadata.store import (
    Changed,
    KeyValue,
    Snapshot,
    TransactionResult,
)

# A broker whose connection keeps breaking though it lives (behind a proxy, say) is not
# taken for dead more often than this; then its lease alone decides.
MAX_FAST_REMOVALS = 2
FAST_REMOVAL_WINDOW_MS = 60_000


class Controller:
    """One reign. Deterministic: equal events, times and `rng` give equal commands."""

    def __init__(
        self,
        keys: Keys,
        identity: ControllerIdentity,
        rng: random.Random,
        *,
        command_timeout_ms: int,
        internal_topics: Sequence[InternalTopic] = (),
    ) -> None:
        self.context = Context(keys)
        self._keys = keys
        self._identity = identity
        self._transactions = Transactions(keys, identity)
        self._dispatch = Dispatch(self.context, identity, command_timeout_ms)
        self._admin = TopicAdmin(
            self.context, self._transactions, self._dispatch.controls, rng, internal_topics
        )
        self._recoveries = RecoveryAdmin(self.context, self._transactions)
        self._unreachable = UnreachableLeaders()
        self._dirty = DirtyPartitions(
            self.context,
            self._transactions,
            self._dispatch.descriptions,
            self._unreachable,
            self._dispatch.is_acknowledged,
            identity.controller_epoch,
        )
        self._removals: dict[int, deque[int]] = {}  # broker id to times of fast removals
        self._loaded = False
        self._early: list[AdminRequest] = []  # came before everything was read
        self._deposed = False
        self._now_ms = 0
        self._out: list[Command] = []

    def handle(self, event: Event, now_ms: int) -> list[Command]:
        """`now_ms` never falls. After `StepDown` there is nothing more to come."""
        if self._deposed:
            return []
        self._now_ms = now_ms
        self._out = []
        self._dirty.touch(self._unreachable.advance(now_ms))
        self._take(event)
        if not self._deposed:
            self._out += self._admin.advance(now_ms)
            self._out += self._recoveries.advance(now_ms)
            self._judge()
            self._out += self._dispatch.due(now_ms)
            self._out += self._dispatch.overdue(now_ms)
        return self._out

    def wake_at_ms(self) -> int | None:
        """When a `Tick` is due unless another event comes first; None: never."""
        times = [
            self._admin.wake_at_ms(),
            self._recoveries.wake_at_ms(),
            self._dispatch.wake_at_ms(),
            self._unreachable.wake_at_ms(),
        ]
        return min((time for time in times if time is not None), default=None)

    def describe(self, request: StateRequest) -> ControllerState:
        """How it stands; changes nothing."""
        return describe(self.context, self._identity, request)

    @property
    def is_loaded(self) -> bool:
        """Whether the cluster has been read."""
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
                self._end_transaction(transaction_id, result)
            case KeysRead(transaction_id, revision, current):
                # As though it had failed: whether it was applied shows in what is found.
                self._end_transaction(transaction_id, TransactionResult(False, revision, current))
            case OutcomeUnknown(transaction_id):
                self._out.append(self._transactions.outcome_unknown(transaction_id))
            case CommandAnswered() | CommandLost() | ReplicasDescribed():
                self._end_command(event)
            case ConnectionEnded():
                self._connection_ended(event)
            case LeadersUnreachable(report):
                self._leaders_unreachable(report)
            case CreateTopic() | DeleteTopic() | RecoverPartitions():
                self._request(event)
            case Tick():
                pass

    def _request(self, request: AdminRequest) -> None:
        if not self._loaded:
            self._early.append(request)
            return
        match request:
            case CreateTopic():
                self._out += self._admin.create(request, self._now_ms)
            case DeleteTopic():
                self._out += self._admin.delete(request, self._now_ms)
            case RecoverPartitions():
                self._out += self._recoveries.recover(request, self._now_ms)

    # What the store says.

    def _load(self, snapshot: Snapshot) -> None:
        self._check_reign(snapshot.items.get(self._keys.controller))
        self._absorb(Changed(item.key, item, item.mod_revision) for item in snapshot.items.values())
        self.context.watched_to(snapshot.revision)
        self._log(
            "controller_loaded",
            brokers=sorted(self.context.brokers),
            topics=len(self.context.topics),
            deletions=len(self.context.deletions),
            revision=snapshot.revision,
        )
        self._loaded = True
        early, self._early = self._early, []
        for request in early:
            self._request(request)

    def _absorb(self, changes: Iterable[Changed]) -> None:
        for change in changes:
            if change.key == self._keys.controller:
                self._check_reign(change.value)
                continue
            match self.context.absorb(change):
                case BrokerChanged() as changed:
                    self._broker_changed(changed)
                case TopicChanged() as changed:
                    self._topic_changed(changed)
                case PartitionChanged() as changed:
                    self._partition_changed(changed)
                case DeletionChanged(topic, new):
                    if new is not None:
                        self._log_news("topic_deletion_began", topic=topic, topic_id=new.topic_id)
                    self._dirty.touch(self.context.partitions_of(topic))
                case ConsentChanged() as changed:
                    self._consent_changed(changed)
                case Malformed(key, problem):
                    self._log("metadata_malformed", Level.WARNING, key=key, problem=problem)
                case None:
                    pass

    def _check_reign(self, held: KeyValue | None) -> None:
        if held is None or held.create_revision > self._identity.key_revision:
            self._step_down("the controller key has passed on")

    def _broker_changed(self, changed: BrokerChanged) -> None:
        broker_id, old, new = changed
        if old is not None and (new is None or new.broker_epoch != old.broker_epoch):
            self._dispatch.left(broker_id)
            self._unreachable.forget_broker(broker_id)
            self._out.append(CloseChannel(broker_id, old.broker_epoch))
            self._log("broker_left", broker_id=broker_id, broker_epoch=old.broker_epoch)
        if new is not None and (old is None or new.broker_epoch != old.broker_epoch):
            registration = new.registration
            self._dispatch.joined(broker_id, new.broker_epoch, self._now_ms)
            self._out.append(OpenChannel(broker_id, new.broker_epoch, registration.address))
            self._log_news(
                "broker_joined",
                broker_id=broker_id,
                broker_epoch=new.broker_epoch,
                address=registration.address,
                whole_since=registration.whole_since,
            )
            for topic in self.context.topics:
                self._dirty.touch(self.context.unplaced(topic))
        elif new is not None:
            self._log("broker_state", broker_id=broker_id, state=new.registration.state)
        replicas = list(self.context.replicas_on(broker_id))
        # Elections go before changes of the ISR: nobody can write until they are done.
        self._dirty.touch(p for p, held in replicas if held.state.leader == broker_id)
        self._dirty.touch(p for p, _ in replicas)

    def _topic_changed(self, changed: TopicChanged) -> None:
        topic, old, new = changed
        if old is None and new is not None:
            self._log_news(
                "topic_created",
                topic=topic,
                topic_id=new.entry.topic_id,
                partitions=new.entry.partitions,
                replication_factor=new.entry.replication_factor,
            )
        elif new is None and old is not None:
            self._log("topic_deleted", topic=topic, topic_id=old.entry.topic_id)
        if new is not None:
            self._dirty.touch(self.context.unplaced(topic))
            if old is not None and new.rules != old.rules:
                self._dirty.touch(self.context.partitions_of(topic))

    def _consent_changed(self, changed: ConsentChanged) -> None:
        partition, new = changed
        if new is not None:
            self._log_news(
                "recovery_consented",
                partition=str(partition),
                from_live_replicas=new.entry.from_live_replicas,
            )
        self._dirty.touch([partition])

    def _partition_changed(self, changed: PartitionChanged) -> None:
        partition, old, new = changed
        self._dirty.touch([partition])
        self._dispatch.changed(partition, old, new, self._now_ms)

    # Deciding.

    def _judge(self) -> None:
        while self._transactions.room_for_batch:
            batch = self._dirty.next_batch()
            if batch is None:
                return
            self._out.append(self._transactions.begin(batch))

    def _end_transaction(self, transaction_id: int, result: TransactionResult) -> None:
        purpose, transaction = self._transactions.end(transaction_id)
        self._absorb(outcome(transaction, result))
        if self._deposed:
            return
        match purpose:
            case PartitionBatch(writes, _):
                self._end_batch(writes, result)
            case RegistrationRemoval(broker_id, broker_epoch) if not result.succeeded:
                # The lease ran out first, or the broker is back in a new life.
                self._log("broker_removal_void", broker_id=broker_id, broker_epoch=broker_epoch)
            case _:
                pass

    def _end_batch(self, writes: Iterable[PartitionWrite], result: TransactionResult) -> None:
        for write in writes:
            held = self.context.partition(write.partition)
            if write.deposes and held is not None and held.state == write.new:
                self._unreachable.deposed(write.partition)
        if result.succeeded:
            self._dirty.touch(write.partition for write in writes)
            self._log_batch(list(writes), result.revision)
            return
        self._dirty.refused(writes)

    # Answers.

    def _end_command(self, event: CommandAnswered | CommandLost | ReplicasDescribed) -> None:
        if not self._dispatch.awaits(event):
            return
        error = None if isinstance(event, CommandLost) else event.result.error
        if error is not None and error.code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._step_down(f"broker {event.broker_id} obeys a newer controller")
            return
        self._dirty.touch(self._dispatch.ended(event, self._now_ms))

    # Leaders that live.

    def _leaders_unreachable(self, report: UnreachableLeadersReport) -> None:
        """A change of the ISR is judged with the reports that stand when it comes; here a
        new report is, with the ISR that stands."""
        for leader in self._unreachable.reported(report, self.context.brokers):
            self._log(
                "leader_unreachable",
                Level.WARNING,
                leader=leader.broker_id,
                broker_epoch=leader.broker_epoch,
                follower=report.broker_id,
                unanswered_ms=leader.unanswered_ms,
            )
            self._dirty.touch(
                partition
                for partition, held in self.context.replicas_on(leader.broker_id)
                if held.state.leader == leader.broker_id and report.broker_id in held.state.replicas
            )

    # Crashes.

    def _connection_ended(self, event: ConnectionEnded) -> None:
        """A refused connect is a process that has ended; the transaction compares the
        registration's creation revision, so that it never hits the next life."""
        broker_id, broker_epoch, dial, detection_ms = event
        broker = self.context.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "broker_epoch": broker_epoch,
            "dial": dial.value,
        }
        if dial not in CRASHED:
            self._log("broker_connection_lost", Level.WARNING, **fields)
            self._dispatch.require_all(broker_id, self._now_ms)
            return
        removal = RegistrationRemoval(broker_id, broker_epoch)
        if self._transactions.is_in_flight(removal):
            return
        if not self._may_remove(broker_id):
            self._log("broker_left_to_its_lease", Level.WARNING, **fields)
            return
        self._log("broker_crash_detected", Level.WARNING, **fields, detection_ms=detection_ms)
        self._out.append(self._transactions.begin(removal))

    def _may_remove(self, broker_id: int) -> bool:
        removals = self._removals.setdefault(broker_id, deque(maxlen=MAX_FAST_REMOVALS))
        oldest_counts = removals and self._now_ms - removals[0] < FAST_REMOVAL_WINDOW_MS
        if len(removals) == MAX_FAST_REMOVALS and oldest_counts:
            return False
        removals.append(self._now_ms)
        return True

    # Telling.

    def _step_down(self, reason: str) -> None:
        if not self._deposed:
            self._deposed = True
            self._out.append(StepDown(reason))

    def _log(self, event: str, level: Level = Level.INFO, **fields: Any) -> None:
        self._out.append(Log(event, fields, level))

    def _log_news(self, event: str, **fields: Any) -> None:
        """What is found at the start of a reign is no news: one line counts it."""
        if self._loaded:
            self._log(event, **fields)

    def _log_batch(self, writes: list[PartitionWrite], revision: int) -> None:
        self._out += told(writes, self.context.deletions, revision)
