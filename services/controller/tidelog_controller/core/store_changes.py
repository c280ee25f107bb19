"""Changes in the metadata store: what a controller does when it learns of them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from tidelog.state_changes.event import Cause, Kind, Stage, broker_stopping
from tidelog_controller.control.command_dispatcher import CommandDispatcher
from tidelog_controller.core.broker_events import broker_event
from tidelog_controller.core.dirty_partitions import DirtyPartitions
from tidelog_controller.core.transaction_events import TransactionEvents
from tidelog_controller.state.commands import (
    CloseChannel,
    Command,
    EmitEvent,
    Level,
    Log,
    OpenChannel,
)
from tidelog_controller.state.context import Context, ControllerIdentity
from tidelog_controller.state.departures import Departures
from tidelog_controller.state.failing_disks import FailingDisks
from tidelog_controller.state.metadata_records import (
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
from tidelog_controller.state.unreachable_leaders import UnreachableLeaders
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.store import Changed, KeyValue


class StoreChanges:
    """Takes changes into the context. Touches the partitions that they affect, and emits the
    commands and events that follow at once."""

    def __init__(
        self,
        keys: Keys,
        identity: ControllerIdentity,
        context: Context,
        dispatcher: CommandDispatcher,
        dirty: DirtyPartitions,
        departures: Departures,
        unreachable: UnreachableLeaders,
        failing_disks: FailingDisks,
        transaction_events: TransactionEvents,
        *,
        is_acknowledged: Callable[[str, str], bool],
        step_down: Callable[[str], None],
        command: Callable[[Command], None],
        emit: Callable[[EmitEvent], None],
    ) -> None:
        """`is_acknowledged`: whether all brokers know the topic with this name and id."""
        self._keys = keys
        self._identity = identity
        self._context = context
        self._dispatcher = dispatcher
        self._dirty = dirty
        self._departures = departures
        self._unreachable = unreachable
        self._failing_disks = failing_disks
        self._transaction_events = transaction_events
        self._is_acknowledged = is_acknowledged
        self._step_down = step_down
        self._command = command
        self._emit = emit
        self._now_ms = 0
        self._wall_ms = 0
        # By key of the intent to delete a topic or partitions: when it was first seen.
        self.deletion_seen_at_ms: dict[str, int] = {}

    def advance(self, now_ms: int, wall_ms: int) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def check_term(self, held: KeyValue | None) -> None:
        """Steps down if `held`, the controller key, is not that of this term."""
        if held is None or held.create_revision > self._identity.key_revision:
            self._step_down("the controller key has passed on")

    def absorb(self, changes: Iterable[Changed], *, is_loaded: bool) -> None:
        """Takes changes into the context. `is_loaded`: they came after the cluster's state was
        read."""
        malformed = set(self._context.malformed)
        self._absorb_each(changes, is_loaded=is_loaded)
        self._readable_again(self._context.topics_of(malformed - self._context.malformed))

    def _readable_again(self, topics: Collection[str]) -> None:
        """Decides topics again that became readable again, and sends their replicas."""
        for topic in sorted(topics):
            self._dirty.touch_topic(topic)
        if topics:
            for broker_id in self._dispatcher.controls:
                self._dispatcher.require_all(broker_id, self._now_ms, Cause.KEY_MENDED)

    def _absorb_each(self, changes: Iterable[Changed], *, is_loaded: bool) -> None:
        for change in changes:
            if change.key == self._keys.controller:
                self.check_term(change.value)
                continue
            match self._context.absorb(change):
                case BrokerChanged() as changed:
                    self._broker_changed(changed, change.revision, is_loaded=is_loaded)
                case DepartureChanged(broker_id, departure):
                    self._departures.recorded(broker_id, departure)
                case TopicChanged() as changed:
                    self._topic_changed(changed, change.revision)
                case PartitionChanged() as changed:
                    self._partition_changed(changed, is_loaded=is_loaded)
                case MaintenanceChanged(broker_id, _):
                    self._dirty.touch_led_by(broker_id)
                case (
                    DeletionChanged() | PartitionsIntentChanged() | ConsentChanged()
                ) as changed_intent:
                    self._intent_changed(changed_intent, change.revision)
                case Malformed(key, problem):
                    fields = {"key": key, "problem": problem}
                    self._command(Log("metadata_malformed", fields, Level.WARNING))
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
                self._note_deletion(self._keys.topic_deletion(topic), stands=new is not None)
                self._dirty.touch_topic(topic)
            case PartitionsIntentChanged(topic, before, after):
                self._note_deletion(
                    self._keys.partition_removal(topic), stands=isinstance(after, Removal)
                )
                self._dirty.touch_resized(topic, before, after)
                if before is not None and after is None:
                    self._transaction_events.intent_done(topic, before.entry, revision)

    def _note_deletion(self, intent: str, *, stands: bool) -> None:
        if stands:
            self.deletion_seen_at_ms.setdefault(intent, self._now_ms)
        else:
            self.deletion_seen_at_ms.pop(intent, None)

    def _broker_changed(self, changed: BrokerChanged, revision: int, *, is_loaded: bool) -> None:
        broker_id, old, new = changed
        if old is not None and (new is None or new.broker_epoch != old.broker_epoch):
            self._dirty.touch(self._dispatcher.broker_left(broker_id))
            self._unreachable.forget_broker(broker_id)
            self._failing_disks.forget_broker(broker_id)
            self._command(CloseChannel(broker_id, old.broker_epoch))
            departure = self._departures.record(old, new, self._wall_ms)
            self._emit(broker_event(Kind.BROKER_LEFT, old, revision, departure.cause))
            self._transaction_events.acknowledged(self._is_acknowledged)
        if new is not None and (old is None or new.broker_epoch != old.broker_epoch):
            why = Cause.BROKER_JOINED if is_loaded else Cause.NEW_CONTROLLER
            self._dispatcher.broker_joined(broker_id, new.broker_epoch, self._now_ms, why)
            self._command(OpenChannel(broker_id, new.broker_epoch, new.registration.address))
            if is_loaded:
                # Brokers found at the start of a term get no event of their own: one counts them.
                why = Cause.REGISTERED if old is None else Cause.BROKER_RESTARTED
                self._emit(broker_event(Kind.BROKER_JOINED, new, revision, why))
        elif new is not None and not new.running:
            self._emit(
                broker_event(
                    Kind.BROKER_STOPPING,
                    new,
                    revision,
                    stage=Stage.RECEIVED,
                    change=broker_stopping(broker_id, new.broker_epoch),
                )
            )
        if old is None or new is None or new.broker_epoch != old.broker_epoch:
            for topic in self._context.unplaced.topics():
                self._dirty.touch_unplaced(topic)
        replicas = list(self._context.replicas_on(broker_id))
        # Elections come before changes of the ISR: no client can write until they are done.
        self._dirty.touch(p for p, held in replicas if held.state.leader == broker_id)
        self._dirty.touch(p for p, _ in replicas)

    def _topic_changed(self, changed: TopicChanged, revision: int) -> None:
        topic, old, new = changed
        if new is None and old is not None:
            self._transaction_events.topic_gone(topic, old.entry.topic_id, revision)
        if new is not None:
            self._dirty.touch_unplaced(topic)
            # They determine the min ISR in force, and which removed partitions may lose their keys.
            if old is not None and (
                new.config != old.config
                or new.entry.first_leader_epoch != old.entry.first_leader_epoch
            ):
                self._dirty.touch_topic(topic)

    def _partition_changed(self, changed: PartitionChanged, *, is_loaded: bool) -> None:
        partition, old, new = changed
        if new is not None:
            self._transaction_events.applied(new.state.change, new.revision)
        self._dirty.touch([partition])
        self._dispatcher.changed(partition, old, new, self._now_ms, is_news=is_loaded)
