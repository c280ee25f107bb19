"""What the controller's core is told. Plain values; the shell makes them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog_controller.state.admin_requests import (
    NOBODY,
    AddPartitions,
    AlterTopicConfig,
    Asker,
    Assignment,
    BeginOperation,
    CancelOperation,
    CheckRestart,
    DescribeBrokers,
    DescribeOperation,
    DescribeRecovery,
    DescribeThrottle,
    DescribeTopics,
    ElectPreferredLeaders,
    ListOperations,
    MoveLeaders,
    RecoveryChoice,
    RemovePartitions,
    SetMaintenance,
    SetThrottle,
)
from tidelog_controller.state.plans import Planned
from tidelog_runtime.disk_reports import DiskReport
from tidelog_runtime.leader_reports import UnreachableLeadersReport
from tidelog_runtime.metadata.store import Changed, KeyValue, Snapshot, TransactionResult
from tidelog_runtime.replica_control import CommandResult, DescribeReplicasResult


class DialOutcome(enum.Enum):
    """How a plain connect to a broker's address ended, after its connection had dropped."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNRESOLVED = "unresolved"  # a resolver that works says that there is no such name any more
    NO_ANSWER = "no_answer"


# What only a process that has ended looks like; anything else may be the network.
CRASHED = frozenset({DialOutcome.REFUSED, DialOutcome.UNRESOLVED})


class Loaded(NamedTuple):
    """The first event: everything in the store, read after the election was won."""

    snapshot: Snapshot


class StoreChanged(NamedTuple):
    changes: Sequence[Changed]


class Transacted(NamedTuple):
    id: int
    result: TransactionResult


class OutcomeUnknown(NamedTuple):
    """The store did not answer a transaction, or the reading that followed it."""

    id: int


class KeysRead(NamedTuple):
    """Answer to `ReadKeys`: every key that was asked for, as it was at one revision."""

    id: int
    revision: int
    current: Mapping[str, KeyValue | None]


class CommandAnswered(NamedTuple):
    broker_id: int
    broker_epoch: int
    id: int
    result: CommandResult


class ReplicasDescribed(NamedTuple):
    broker_id: int
    broker_epoch: int
    id: int
    result: DescribeReplicasResult


class CommandLost(NamedTuple):
    """No answer: the broker may or may not have carried the command out. Also of a
    question about logs."""

    broker_id: int
    broker_epoch: int
    id: int
    reason: str


class ConnectionEnded(NamedTuple):
    """The watch stream to one life of a broker has ended, and its address was dialled."""

    broker_id: int
    broker_epoch: int
    dial: DialOutcome
    detection_ms: int


class LeadersUnreachable(NamedTuple):
    """What one broker reports: all the leaders that it cannot reach now."""

    report: UnreachableLeadersReport


class DiskReported(NamedTuple):
    """What one broker reports of its disk."""

    report: DiskReport


class CreateTopic(NamedTuple):
    """`trace_id`, here and below: of the request's W3C trace context; empty: none."""

    request_id: int
    topic: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    assignment: Assignment = ()
    operation_id: str = ""
    asker: Asker = NOBODY


class DeleteTopic(NamedTuple):
    """`topic_id`, `expected_revision`: where set, only a topic of this id, as it was then, is
    deleted."""

    request_id: int
    topic: str
    topic_id: str
    timeout_ms: int
    trace_id: str = ""
    dry_run: bool = False
    asker: Asker = NOBODY
    expected_revision: int = 0


class RecoverPartitions(NamedTuple):
    """`partitions` empty: all that have no leader."""

    request_id: int
    topic: str
    partitions: tuple[int, ...]
    from_live_replicas: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY
    choices: tuple[RecoveryChoice, ...] = ()


class PlanMade(NamedTuple):
    """Answer to `MakePlan`: a plan, or why there is none."""

    id: int
    planned: Planned | None
    error: TidelogError | None


class PlacesFound(NamedTuple):
    """Answer to `FindPlaces`: the replicas of each partition, or why there are none."""

    id: int
    places: Assignment
    error: TidelogError | None


class SnapshotRead(NamedTuple):
    """Answer to `ReadSnapshot`: what was found, or why nothing was."""

    id: int
    found: object
    error: TidelogError | None


class Tick(NamedTuple):
    """Time has reached what `Controller.wake_at_ms` said."""


AdminRequest = (
    CreateTopic
    | DeleteTopic
    | AlterTopicConfig
    | AddPartitions
    | RemovePartitions
    | RecoverPartitions
    | BeginOperation
    | CancelOperation
    | ListOperations
    | DescribeOperation
    | SetThrottle
    | DescribeThrottle
    | ElectPreferredLeaders
    | MoveLeaders
    | SetMaintenance
    | CheckRestart
    | DescribeBrokers
    | DescribeTopics
    | DescribeRecovery
)
Event = (
    Loaded
    | StoreChanged
    | Transacted
    | OutcomeUnknown
    | KeysRead
    | CommandAnswered
    | CommandLost
    | ReplicasDescribed
    | ConnectionEnded
    | LeadersUnreachable
    | DiskReported
    | PlanMade
    | PlacesFound
    | SnapshotRead
    | AdminRequest
    | Tick
)
