"""What all registered brokers have yet to receive and acknowledge, and the commands for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.inspection.state_reports import BrokerBacklog, StateRequest
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.control.broker_control import ANYTHING, BrokerControl
from tidelog_controller.control.command_building import (
    description_command,
    full_state_command,
    measuring_command,
    next_command,
)
from tidelog_controller.control.command_events import FIRST_PARTITIONS, CommandEvents
from tidelog_controller.control.log_descriptions import Descriptions
from tidelog_controller.control.move_progress_probe import MoveProgressProbe
from tidelog_controller.policies.causes import is_by_controller
from tidelog_controller.policies.reassignment import is_step
from tidelog_controller.state.commands import (
    EmitEvent,
    EmitEvents,
    SendDescribeReplicas,
    SendLeaderAndIsr,
    SendStopReplica,
)
from tidelog_controller.state.context import Context, ControllerIdentity
from tidelog_controller.state.events import CommandAnswered, CommandLost, ReplicasDescribed
from tidelog_controller.state.metadata_records import Partition

# For a step of a move, the leader gets its command before the followers. Otherwise they would fetch
# in vain, and retry. They wait for the leader's acknowledgement for at most this time.
LEADER_FIRST_MS = 100
# Commands of an election go to all replicas at once, unless this many commands already wait for the
# leader. Then the leader comes first here, too: in an election of ten thousand partitions, fetches
# in vain cost more than all else.
MANY_ELECTIONS = 240

SendCommand = SendLeaderAndIsr | SendStopReplica | SendDescribeReplicas


class CommandDispatcher:
    """Sends each broker what it has to know, and tracks what it has acknowledged.

    `controls`: by broker id, one for each current incarnation. A broker that has not acknowledged a
    state for `command_timeout_ms` is reported once as overdue.
    """

    def __init__(
        self,
        context: Context,
        identity: ControllerIdentity,
        command_timeout_ms: int,
        emit: Callable[[EmitEvent | EmitEvents], None],
    ) -> None:
        self.controls: dict[int, BrokerControl] = {}
        self._command_events: dict[int, CommandEvents] = {}  # of the same brokers
        self._emit = emit
        self.descriptions = Descriptions()
        self.move_progress = MoveProgressProbe(context.operations)
        self._context = context
        self._identity = identity
        self._command_timeout_ms = command_timeout_ms
        self._last_command_id = 0
        # By partition: its leader, if the leader gets its command before the followers.
        self._led_first: dict[TopicPartition, int] = {}

    # What each broker has to know.

    def broker_joined(self, broker_id: int, broker_epoch: int, now_ms: int, why: Cause) -> None:
        self.controls[broker_id] = BrokerControl(broker_id, broker_epoch)
        self._command_events[broker_id] = CommandEvents(
            broker_id, broker_epoch, self._identity.controller_epoch, self._emit
        )
        self.require_all(broker_id, now_ms, why)

    def broker_left(self, broker_id: int) -> list[TopicPartition]:
        """Returns the partitions in deletion that no longer need to wait for the broker.

        Among them are partitions that were moved away from it.
        """
        control = self.controls.pop(broker_id)
        del self._command_events[broker_id]
        self.descriptions.forget_broker(broker_id)
        self.move_progress.forget_broker(broker_id)
        return [p for p in control.waiting() if self._context.is_being_deleted(p)]

    def require_all(self, broker_id: int, now_ms: int, why: Cause) -> None:
        """Sends the full state again."""
        control = self.controls[broker_id]
        control.require_full_state(why)
        for partition, held in self._context.replicas_on(broker_id):
            control.require(partition, held.revision, now_ms)

    def changed(
        self,
        partition: TopicPartition,
        old: Partition | None,
        new: Partition | None,
        now_ms: int,
        *,
        is_news: bool,
    ) -> None:
        """Sends the partition's new state to the brokers that it concerns.

        Followers that waited for their leader's acknowledgement no longer wait.

        - `old`, `new`: None if the key did not or does not exist.
        - `is_news`: false for states found at the start of a term; the full state covers their
          events.
        """
        self._release_followers(partition)
        if new is None:
            for broker_id, control in self.controls.items():
                control.forget(partition)
                if old is not None:
                    self._command_events[broker_id].forget(partition, old.state.topic_id)
            return
        # A leader needs no event about changes that it wrote itself.
        is_news = is_news and (not is_isr_only(old, new) or is_by_controller(new.state.change))
        for broker_id in concerned(old, new):
            if broker_id in self.controls:
                self.controls[broker_id].require(partition, new.revision, now_ms)
                if is_news:
                    self._command_events[broker_id].changed(partition)
        if is_news and old is not None and self._is_sent_first(old, new):
            self._hold_followers(partition, new, now_ms)

    def _is_sent_first(self, old: Partition, new: Partition) -> bool:
        """Whether the leader gets its command before its followers."""
        leader = self.controls.get(new.state.leader)
        if leader is None:
            return False
        elected = old.state.leader_epoch != new.state.leader_epoch
        return is_step(old.state, new.state) or (elected and len(leader) > MANY_ELECTIONS)

    def _hold_followers(self, partition: TopicPartition, new: Partition, now_ms: int) -> None:
        leader = new.state.leader
        self._led_first[partition] = leader
        for broker_id in new.state.replicas:
            if broker_id != leader and broker_id in self.controls:
                self.controls[broker_id].hold(partition, now_ms + LEADER_FIRST_MS)

    def _release_followers(self, partition: TopicPartition) -> None:
        if self._led_first.pop(partition, None) is not None:
            for control in self.controls.values():
                control.release(partition)

    def is_acknowledged(self, partition: TopicPartition) -> bool:
        return not any(control.waits_for(partition) for control in self.controls.values())

    def full_states_acknowledged(self) -> bool:
        """Whether all live brokers have acknowledged their full state."""
        return not any(control.awaits_full_state for control in self.controls.values())

    def receivers(self) -> tuple[int, ...]:
        """The running brokers that have acknowledged their full state.

        Before that, a broker cannot distinguish replicas from strays, and moves to it wait.
        """
        brokers = self._context.brokers
        ready = (b for b, c in self.controls.items() if not c.awaits_full_state)
        return tuple(sorted(b for b in ready if b in brokers and brokers[b].running))

    # Commands.

    def due(self, now_ms: int, wall_ms: int) -> list[SendCommand]:
        """Returns the commands to send now, and marks them as sent."""
        commands: list[SendCommand] = []
        for broker_id, control in self.controls.items():
            command = self._command(control, now_ms, wall_ms)
            if command is not None:
                self._last_command_id = command.id
                commands.append(command)
                self._command_events[broker_id].sent(command)
            description = self._description(control, now_ms)
            if description is not None:
                self._last_command_id = description.id
                commands.append(description)
            measuring = measuring_command(
                self._identity, control, self.move_progress, self._last_command_id + 1
            )
            if measuring is not None:
                self._last_command_id = measuring.id
                commands.append(measuring)
        return commands

    def _command(
        self, control: BrokerControl, now_ms: int, wall_ms: int
    ) -> SendLeaderAndIsr | SendStopReplica | None:
        if not control.is_ready(now_ms):
            return None
        parts = (self._context, self._identity, control, self._last_command_id + 1)
        if control.full_state_due:
            return full_state_command(*parts, wall_ms)
        return next_command(*parts, now_ms)

    def _description(self, control: BrokerControl, now_ms: int) -> SendDescribeReplicas | None:
        return description_command(
            self._identity, control, self.descriptions, self._last_command_id + 1, now_ms
        )

    def awaits(self, event: CommandAnswered | CommandLost | ReplicasDescribed) -> bool:
        """Whether the event concerns the current incarnation of a broker."""
        control = self.controls.get(event.broker_id)
        return control is not None and control.broker_epoch == event.broker_epoch

    def ended(
        self, event: CommandAnswered | CommandLost | ReplicasDescribed, now_ms: int
    ) -> Iterable[TopicPartition]:
        """Handles the answer of a current incarnation; returns the partitions to decide again."""
        control = self.controls[event.broker_id]
        match event:
            case CommandLost():
                control.lost(event.id, now_ms, event.reason)
                self.descriptions.lost(event.broker_id, event.id, now_ms)
                self.move_progress.lost(event.broker_id, event.id)
                return ()
            case ReplicasDescribed():
                self.move_progress.answered(event.broker_id, event.id, event.result, now_ms)
                return self.descriptions.answered(event.broker_id, event.id, event.result, now_ms)
            case CommandAnswered():
                awaited = control.awaits_full_state
                done = control.answered(event.id, event.result, now_ms)
                for partition in done:
                    if self._led_first.get(partition) == event.broker_id:
                        self._release_followers(partition)
                command_events = self._command_events[event.broker_id]
                command_events.answered(event.id, event.result)
                if not len(control):
                    command_events.all_acknowledged()
                # Acknowledged partitions in deletion lose their keys next.
                going = [p for p in done if self._context.is_being_deleted(p)]
                return [*going, *(self._waiting_for_full_states() if awaited else ())]

    def _waiting_for_full_states(self) -> Iterable[TopicPartition]:
        """New partitions of topics from which partitions were removed."""
        for topic, held in self._context.topics.items():
            if held.entry.shrunk:
                for number in self._context.unplaced.of(topic):
                    yield TopicPartition(topic, number)

    # Time.

    def emit_overdue(self, now_ms: int, wall_ms: int) -> None:
        """Reports each broker with overdue acknowledgements once."""
        for broker_id, control in self.controls.items():
            due_at_ms = control.overdue_at_ms(self._command_timeout_ms)
            if due_at_ms is None or due_at_ms > now_ms:
                continue
            control.emit_overdue()
            first = [str(partition) for partition in control.first_waiting(FIRST_PARTITIONS)]
            since_ms = wall_ms - control.waiting_ms(now_ms)
            self._command_events[broker_id].overdue(first, len(control), since_ms)

    def backlogs(self, now_ms: int, asked: StateRequest = ANYTHING) -> list[BrokerBacklog]:
        """What each live broker has yet to acknowledge, sorted by broker id."""
        return [
            self.controls[b].backlog(now_ms, self._command_timeout_ms, asked)
            for b in sorted(self.controls)
        ]

    def wake_at_ms(self) -> int | None:
        """When there is something to send or to report; None: nothing waits for time to pass."""
        times = [self.descriptions.wake_at_ms()]
        for control in self.controls.values():
            times += [control.wake_at_ms(), control.overdue_at_ms(self._command_timeout_ms)]
        return min((time for time in times if time is not None), default=None)


def concerned(old: Partition | None, new: Partition) -> tuple[int, ...]:
    """The brokers that have to know of a change.

    A change of only the ISR concerns the leader alone. A new epoch concerns all replicas, and the
    brokers that cease to be replicas, which stop theirs. Without a leader all replicas need the
    newest revision, because descriptions of their logs are requested at it.
    """
    if is_isr_only(old, new):
        return (new.state.leader,)
    return (*new.state.replicas, *departed(old, new))


def departed(old: Partition | None, new: Partition) -> tuple[int, ...]:
    """The brokers that the partition moved away from.

    A topic of another id was deleted and not moved: its remaining replicas are strays.
    """
    if old is None or old.state.topic_id != new.state.topic_id:
        return ()
    return tuple(b for b in old.state.replicas if b not in new.state.replicas)


def is_isr_only(old: Partition | None, new: Partition) -> bool:
    """Whether the leader continues in its epoch and only the ISR may have changed."""
    return (
        old is not None
        and new.state.leader != NO_LEADER
        and old.state.topic_id == new.state.topic_id
        and old.state.leader_epoch == new.state.leader_epoch
        and old.state.replicas == new.state.replicas
        and old.state.moving == new.state.moving
    )
