"""What the controller's core wants done. Plain values; the shell carries them out and
tells the outcome in an event."""

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
from tidelog_controller.state.plans import Planned
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
    """Reads all keys at one revision, after a delay. Ends in `KeysRead` or
    `OutcomeUnknown`."""

    id: int
    keys: tuple[str, ...]
    delay_ms: int


class OpenChannel(NamedTuple):
    """Connects to one life of a broker and watches the connection."""

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
    """Ends in `PlanMade`. `make` takes its time, reads nothing that changes, and raises
    `TidelogError`."""

    id: int
    make: Callable[[], Planned]


class FindPlaces(NamedTuple):
    """Ends in `PlacesFound`. `find` takes its time and reads nothing that changes. `id`: of the
    request."""

    id: int
    find: Callable[[], Assignment]


class ReadSnapshot(NamedTuple):
    """`read` is run off the event loop; `SnapshotRead` brings what it found, or the `TidelogError`
    that it raised."""

    id: int
    read: Callable[[], object]


class AdminReply(NamedTuple):
    """`pending_brokers`: without an acknowledgement when time was up; where replicas were to start,
    also those that have died.
    `partitions`: what became of each that the request was about. `answer`: what only a request
    of its kind is answered with."""

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


class Tell(NamedTuple):
    """One stage of a state change; `StateChange` documents the fields, and the shell knows
    the rest of them. `cause` None: that of the `change`."""

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

    def at(self, stage: Stage, revision: int | None = None, cause: Cause | None = None) -> Tell:
        """A later stage of the same."""
        return Tell(
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


class TellEach(NamedTuple):
    """Many stages of state changes, in order. They are made as they are taken, which is when
    there is time: ten thousand elections do not wait for what is told of them. `size`: how
    many they are."""

    told: Iterable[Tell]
    size: int


class StepDown(NamedTuple):
    """Another controller has taken over: nothing that this one knows counts any more."""

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
    | Tell
    | TellEach
    | StepDown
)
