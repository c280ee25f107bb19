"""The commands of the controller's core.

Plain values. The shell carries them out and returns the outcome as an event.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.errors import TidelogError
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes.event import (
    NO_BROKER,
    NO_CHANGE,
    NO_REVISION,
    Cause,
    Change,
    Detail,
    Kind,
    Stage,
)
from tidelog_controller.state.admin_answers import Answer
from tidelog_controller.state.admin_requests import Assignment
from tidelog_controller.state.mutations import OperationPlan
from tidelog_runtime.metadata.store import Transaction
from tidelog_runtime.replica_control import (
    DescribeReplicasCommand,
    LeaderAndIsrCommand,
    StopReplicaCommand,
)


class Transact(NamedTuple):
    """Ends in `Transacted` or `OutcomeUnknown`."""

    id: int
    transaction: Transaction


class ReadKeys(NamedTuple):
    """Reads all keys at one revision, after a delay. Ends in `KeysRead` or `OutcomeUnknown`."""

    id: int
    keys: tuple[str, ...]
    delay_ms: int


class OpenChannel(NamedTuple):
    """Connects to one incarnation of a broker and watches the connection."""

    broker_id: int
    broker_epoch: int
    address: str


class CloseChannel(NamedTuple):
    broker_id: int
    broker_epoch: int


class SendLeaderAndIsr(NamedTuple):
    """Ends in `CommandAnswered` or `CommandLost`."""

    broker_id: int
    id: int
    command: LeaderAndIsrCommand


class SendStopReplica(NamedTuple):
    """Ends in `CommandAnswered` or `CommandLost`."""

    broker_id: int
    id: int
    command: StopReplicaCommand


class SendDescribeReplicas(NamedTuple):
    """Ends in `ReplicasDescribed` or `CommandLost`."""

    broker_id: int
    id: int
    command: DescribeReplicasCommand


class MakePlan(NamedTuple):
    """Ends in `PlanMade`.

    `make` may take long, reads nothing that changes, and raises `TidelogError`.
    """

    id: int
    make: Callable[[], OperationPlan]


class FindPlaces(NamedTuple):
    """Ends in `PlacesFound`.

    - `id`: the id of the request.
    - `find`: may take long, and reads nothing that changes.
    """

    id: int
    find: Callable[[], Assignment]


class ReadSnapshot(NamedTuple):
    """Runs `read` outside the event loop. Ends in `SnapshotRead`, with the result or the error.

    `read` may raise `TidelogError`.
    """

    id: int
    read: Callable[[], object]


class AdminReply(NamedTuple):
    """The reply to an admin request.

    - `pending_brokers`: those without an acknowledgement when the time was up; if replicas had to
      start, also brokers that have failed.
    - `partitions`: the outcome of each requested partition.
    - `answer`: what only this kind of request returns.
    """

    error: TidelogError | None
    topic_id: str = ""
    pending_brokers: tuple[int, ...] = ()
    partitions: tuple[tuple[int, TidelogError | None], ...] = ()
    answer: Answer | None = None


class Reply(NamedTuple):
    request_id: int
    reply: AdminReply


class Level(enum.Enum):
    INFO = "info"
    WARNING = "warning"


class Log(NamedTuple):
    event: str
    fields: Mapping[str, Any]
    level: Level = Level.INFO


class EmitEvent(NamedTuple):
    """One stage of a state change, to report.

    `StateChange` documents the fields; the shell fills in the others. `cause` None: that of
    `change`.
    """

    kind: Kind
    stage: Stage
    change: Change = NO_CHANGE
    name: TopicPartition | None = None
    topic: str = ""
    topic_id: str = ""
    broker: int = NO_BROKER
    broker_epoch: int = NO_REVISION
    leader_epoch: int = NO_EPOCH
    revision: int = NO_REVISION
    details: Mapping[str, Detail] = {}
    cause: Cause | None = None

    def at(
        self, stage: Stage, revision: int | None = None, cause: Cause | None = None
    ) -> EmitEvent:
        """The same event at a later stage."""
        return EmitEvent(
            self.kind,
            stage,
            self.change,
            self.name,
            self.topic,
            self.topic_id,
            self.broker,
            self.broker_epoch,
            self.leader_epoch,
            self.revision if revision is None else revision,
            self.details,
            cause,
        )


class EmitEvents(NamedTuple):
    """Many stages of state changes, in order.

    They are created lazily, when they are consumed: ten thousand elections do not wait for their
    events. `size`: their number.
    """

    events: Iterable[EmitEvent]
    size: int


class StepDown(NamedTuple):
    """Another controller has taken over: this one's state is no longer valid."""

    reason: str


Command = (
    Transact
    | ReadKeys
    | OpenChannel
    | CloseChannel
    | SendLeaderAndIsr
    | SendStopReplica
    | SendDescribeReplicas
    | MakePlan
    | FindPlaces
    | ReadSnapshot
    | Reply
    | Log
    | EmitEvent
    | EmitEvents
    | StepDown
)
