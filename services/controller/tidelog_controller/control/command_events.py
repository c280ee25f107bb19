"""Events about the commands to one incarnation of a broker.

Each change has one event when it is first sent and one when it is acknowledged, however often it is
sent again. A full state mostly repeats what replicas know. So it has one event as a command, and
further ones only for replicas whose state is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_controller.control.broker_control import ALREADY_GONE
from tidelog_controller.policies.causes import change_id
from tidelog_controller.state.commands import (
    EmitEvent,
    EmitEvents,
    SendLeaderAndIsr,
    SendStopReplica,
)
from tidelog_runtime.replica_control import (
    CommandResult,
    LeaderAndIsrCommand,
    PartitionCommand,
    StopPartition,
)

# The number of overdue partitions that are named.
FIRST_PARTITIONS = 5


@dataclass(frozen=True, slots=True)
class ReplicasStage:
    """One stage of what one incarnation of a broker is sent about its replicas."""

    stage: Stage
    broker_id: int
    broker_epoch: int
    wanted: Sequence[PartitionCommand | StopPartition]

    def __iter__(self) -> Iterator[EmitEvent]:
        for wanted in self.wanted:
            if isinstance(wanted, StopPartition):
                yield self._event(
                    Kind.DELETE, wanted, wanted.change, wanted.topic_id, wanted.leader_epoch
                )
            else:
                state = wanted.state
                leads = state.leader == self.broker_id
                kind = Kind.BECOME_LEADER if leads else Kind.BECOME_FOLLOWER
                yield self._event(kind, wanted, state.change, state.topic_id, state.leader_epoch)

    def _event(
        self,
        kind: Kind,
        wanted: PartitionCommand | StopPartition,
        change: Change,
        topic_id: str,
        leader_epoch: int,
    ) -> EmitEvent:
        return EmitEvent(
            kind,
            self.stage,
            change,
            wanted.partition,
            "",
            topic_id,
            self.broker_id,
            self.broker_epoch,
            leader_epoch,
            wanted.revision,
        )


class CommandEvents:
    """Emits the events about the commands to one incarnation of a broker.

    The `REQUESTED` event of the full state, and the event of overdue partitions, are kept until
    they are acknowledged.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        controller_epoch: int,
        emit: Callable[[EmitEvent | EmitEvents], None],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller_epoch = controller_epoch
        self._emit = emit
        self._news: dict[TopicPartition, None] = {}  # not sent yet
        # Sent and reported, but not acknowledged; by topic id and number.
        self._requested: dict[tuple[str, int], PartitionCommand | StopPartition] = {}
        self._full_state: EmitEvent | None = None
        self._full_state_command = 0  # the id of the last command that was one
        self._overdue: EmitEvent | None = None

    def changed(self, partition: TopicPartition) -> None:
        self._news[partition] = None

    def forget(self, partition: TopicPartition, topic_id: str) -> None:
        """Drops the partition: its acknowledgement is no longer awaited."""
        self._news.pop(partition, None)
        self._requested.pop((topic_id, partition.partition), None)

    def sent(self, command: SendLeaderAndIsr | SendStopReplica) -> None:
        sent = command.command
        if isinstance(sent, LeaderAndIsrCommand) and sent.full_state:
            self._full_state_sent(command.id, sent)
        if self._news:
            self._request([each for each in sent.partitions if each.partition in self._news])

    def answered(self, command_id: int, result: CommandResult) -> None:
        if command_id == self._full_state_command:
            self._end_full_state(result)
        if not self._requested:
            return
        done: list[PartitionCommand | StopPartition] = []
        for topic_id, number, revision, error in result.partitions:
            wanted = self._requested.get((topic_id, number))
            if wanted is None:
                continue
            # A deleted replica has no revision of its own.
            gone = error is not None and error.code in ALREADY_GONE
            reached = error is None and revision >= wanted.revision
            if reached or (gone and isinstance(wanted, StopPartition)):
                del self._requested[topic_id, number]
                done.append(wanted)
        self._emit_each(Stage.ACKNOWLEDGED, done)

    def overdue(self, waiting: list[str], count: int, since_wall_ms: int) -> None:
        """`waiting`: the first of `count` unacknowledged partitions."""
        name = change_id(self._controller_epoch, f"overdue-{self._broker_id}-{since_wall_ms}")
        self._overdue = EmitEvent(
            Kind.COMMAND_OVERDUE,
            Stage.COMPLETED,
            Change(name, Cause.TIMEOUT, since_wall_ms),
            broker=self._broker_id,
            broker_epoch=self._broker_epoch,
            details={"partitions": count, "first": waiting},
        )
        self._emit(self._overdue)

    def all_acknowledged(self) -> None:
        if self._overdue is not None:
            self._emit(self._overdue.at(Stage.ACKNOWLEDGED))
            self._overdue = None

    def _request(self, news: Sequence[PartitionCommand | StopPartition]) -> None:
        for wanted in news:
            del self._news[wanted.partition]
            self._requested[_key(wanted)] = wanted
        self._emit_each(Stage.REQUESTED, news)

    def _emit_each(self, stage: Stage, wanted: Sequence[PartitionCommand | StopPartition]) -> None:
        if wanted:
            stages = ReplicasStage(stage, self._broker_id, self._broker_epoch, wanted)
            self._emit(EmitEvents(stages, len(wanted)))

    def _full_state_sent(self, command_id: int, sent: LeaderAndIsrCommand) -> None:
        self._full_state_command = command_id
        if self._full_state is not None:
            return
        self._full_state = EmitEvent(
            Kind.COMMAND,
            Stage.REQUESTED,
            sent.change,
            broker=self._broker_id,
            broker_epoch=self._broker_epoch,
            details={
                "command": "leader_and_isr",
                "full_state": True,
                "partitions": len(sent.partitions),
            },
        )
        self._emit(self._full_state)

    def _end_full_state(self, result: CommandResult) -> None:
        requested = self._full_state
        if requested is None:
            return
        if result.error is None:
            self._full_state = None
            self._emit(requested.at(Stage.ACKNOWLEDGED))


def _key(wanted: PartitionCommand | StopPartition) -> tuple[str, int]:
    topic_id = wanted.topic_id if isinstance(wanted, StopPartition) else wanted.state.topic_id
    return topic_id, wanted.partition.partition
