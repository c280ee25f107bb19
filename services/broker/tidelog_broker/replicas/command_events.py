"""Emits what happens to the controller's commands.

There is one event for each stage of each replica to which a command brings news.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Change, Detail, Kind, Stage
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_runtime.replica_control import (
    LeaderAndIsrCommand,
    PartitionCommand,
    StopPartition,
    StopReplicaCommand,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class Part(NamedTuple):
    """What a command requires of one replica."""

    kind: Kind
    name: TopicPartition
    key: ReplicaKey
    change: Change
    controller_epoch: int
    broker_epoch: int
    leader_epoch: int
    revision: int


class Epochs(NamedTuple):
    """Epochs of the commanding controller and of the commanded incarnation."""

    controller: int
    broker: int


class CommandRejection(NamedTuple):
    """The rejection of a whole command."""

    command: str
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    cause: Cause


def role_part(wanted: PartitionCommand, broker_id: int, command: LeaderAndIsrCommand) -> Part:
    """Returns the part of a command for one replica.

    A full state may name changes that are days old: their durations and causes do not apply to a
    replica that receives them now.
    """
    change = wanted.state.change
    if command.full_state:
        change = change._replace(cause=Cause.FULL_STATE, requested_at_ms=0)
    leads = wanted.state.leader == broker_id
    return Part(
        Kind.BECOME_LEADER if leads else Kind.BECOME_FOLLOWER,
        wanted.partition,
        ReplicaKey(wanted.state.topic_id, wanted.partition.partition),
        change,
        command.controller_epoch,
        command.broker_epoch,
        wanted.state.leader_epoch,
        wanted.revision,
    )


def stop_part(wanted: StopPartition, command: StopReplicaCommand) -> Part:
    return Part(
        Kind.DELETE if wanted.delete else Kind.STOP,
        wanted.partition,
        ReplicaKey(wanted.topic_id, wanted.partition.partition),
        wanted.change,
        command.controller_epoch,
        command.broker_epoch,
        wanted.leader_epoch,
        wanted.revision,
    )


class CommandEvents:
    """Emits events of commands.

    A failed command that is sent again is emitted once, and so is the repeated rejection of a whole
    command.
    """

    def __init__(self, log: StateChangeLog, broker_id: int) -> None:
        self._log = log
        self._broker_id = broker_id
        # The last failure of each replica, until it has succeeded or is no longer assigned here.
        # Bounded by the replicas that the controller assigns to this broker.
        self._failed: dict[ReplicaKey, tuple[Kind, int, str]] = {}
        self._last_rejection: CommandRejection | None = None

    def rejected(self, rejection: CommandRejection, partitions: int, trace_id: str) -> None:
        if rejection == self._last_rejection:
            return
        self._last_rejection = rejection
        self._log.emit(
            Kind.COMMAND,
            Stage.IGNORED,
            change=Change(cause=rejection.cause, trace_id=trace_id),
            broker=self._broker_id,
            broker_epoch=rejection.broker_epoch,
            controller_epoch=rejection.controller_epoch,
            details={
                "command": rejection.command,
                "controller": rejection.controller_id,
                "partitions": partitions,
            },
        )

    def full_state(self, stage: Stage, command: LeaderAndIsrCommand) -> None:
        self._log.emit(
            Kind.COMMAND,
            stage,
            change=command.change,
            broker=self._broker_id,
            broker_epoch=command.broker_epoch,
            controller_epoch=command.controller_epoch,
            revision=command.store_revision,
            details={
                "command": "leader_and_isr",
                "full_state": True,
                "partitions": len(command.partitions),
            },
        )

    def received(self, part: Part) -> None:
        """Emits nothing for a command that repeats a failed one."""
        if not self._failed or self._failed.get(part.key, ())[:2] != (part.kind, part.revision):
            self._emit(part, Stage.RECEIVED)

    def created(self, part: Part) -> None:
        self._emit(part._replace(kind=Kind.CREATE), Stage.COMPLETED)

    def completed(self, part: Part, details: Mapping[str, Detail] | None = None) -> None:
        self._failed.pop(part.key, None)
        self._emit(part, Stage.COMPLETED, details=details)

    def ignored(self, part: Part, cause: Cause, known_revision: int | None = None) -> None:
        known = {} if known_revision is None else {"known_revision": known_revision}
        self._emit(part, Stage.IGNORED, cause, known)

    def failed(self, part: Part, cause: Cause, why: str) -> None:
        failure = (part.kind, part.revision, why)
        if self._failed.get(part.key) != failure:
            self._failed[part.key] = failure
            self._emit(part, Stage.FAILED, cause, {"why": why})

    def forget(self, key: ReplicaKey) -> None:
        """Called when the replica is gone: nothing that failed is tried again."""
        self._failed.pop(key, None)

    def forget_unnamed(self, named: Collection[ReplicaKey]) -> None:
        """Called with a full state, which names all replicas that are assigned here."""
        for key in [key for key in self._failed if key not in named]:
            del self._failed[key]

    def stopped(
        self,
        name: TopicPartition,
        key: ReplicaKey,
        change: Change,
        by: Epochs,
        leader_epoch: int,
        revision: int,
        why: str = "",
    ) -> None:
        """Emits the stop of a replica that no command stopped.

        A command of the epochs `by` has shown that the name belongs to another topic, or that the
        replica is not assigned here. `why` it could not be set aside; empty: it was.
        """
        part = Part(Kind.STOP, name, key, change, by.controller, by.broker, leader_epoch, revision)
        if why:
            self._emit(part, Stage.FAILED, details={"why": why})
        else:
            self._failed.pop(key, None)
            self._emit(part, Stage.COMPLETED)

    def _emit(
        self,
        part: Part,
        stage: Stage,
        cause: Cause | None = None,
        details: Mapping[str, Detail] | None = None,
    ) -> None:
        self._log.emit(
            part.kind,
            stage,
            change=part.change,
            cause=cause,
            name=part.name,
            topic_id=part.key.topic_id,
            broker=self._broker_id,
            broker_epoch=part.broker_epoch,
            controller_epoch=part.controller_epoch,
            leader_epoch=part.leader_epoch,
            revision=part.revision,
            details=details,
        )
