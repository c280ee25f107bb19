"""The events of the controller's core. Plain values, created by the shell."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.admin_messages import RecoveryChoice
from tidelog.errors import TidelogError
from tidelog_controller.state.admin_requests import (
    UNKNOWN_CALLER,
    AddPartitions,
    AlterTopicConfig,
    Assignment,
    BeginOperation,
    Caller,
    CancelOperation,
    CheckRestart,
    DescribeBrokers,
    DescribeFeatureLevel,
    DescribeOperation,
    DescribeRecovery,
    DescribeThrottle,
    DescribeTopics,
    ElectPreferredLeaders,
    ListOperations,
    MoveLeaders,
    RaiseFeatureLevel,
    RemovePartitions,
    SetMaintenance,
    SetThrottle,
)
from tidelog_controller.state.mutations import OperationPlan
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport
from tidelog_runtime.metadata.store import Changed, KeyValue, Snapshot, TransactionResult
from tidelog_runtime.replica_control import CommandResult, DescribeReplicasResult


class DialOutcome(enum.Enum):
    """The outcome of a plain connect to a broker's address, after its connection had ended."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNRESOLVED = "unresolved"  # a working resolver reports that the name no longer exists
    NO_ANSWER = "no_answer"


# Outcomes that only an ended process has; any other may be due to the network.
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
    """The store answered neither a transaction nor the read that followed it."""

    id: int


class KeysRead(NamedTuple):
    """Answer to `ReadKeys`: every requested key, as it was at one revision."""

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
    """No answer: the broker may or may not have carried out the command.

    Also for a request to describe logs.
    """

    broker_id: int
    broker_epoch: int
    id: int
    reason: str


class ConnectionEnded(NamedTuple):
    """The watch stream to one incarnation of a broker has ended, and its address was dialled."""

    broker_id: int
    broker_epoch: int
    dial: DialOutcome
    detection_ms: int


class LeadersUnreachable(NamedTuple):
    """One broker's report of all leaders that it cannot reach now."""

    report: UnreachableLeadersReport


class DiskReported(NamedTuple):
    """One broker's report about its disk."""

    report: DiskReport


class CreateTopic(NamedTuple):
    """`trace_id`, here and below: the id of the request's W3C trace context; empty: none."""

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
    caller: Caller = UNKNOWN_CALLER


class DeleteTopic(NamedTuple):
    """`topic_id`, `expected_revision`: if set, the topic is deleted only if both match."""

    request_id: int
    topic: str
    topic_id: str
    timeout_ms: int
    trace_id: str = ""
    dry_run: bool = False
    caller: Caller = UNKNOWN_CALLER
    expected_revision: int = 0


class RecoverPartitions(NamedTuple):
    """`partitions` empty: all that have no leader."""

    request_id: int
    topic: str
    partitions: tuple[int, ...]
    from_live_replicas: bool
    timeout_ms: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER
    choices: tuple[RecoveryChoice, ...] = ()


class PlanMade(NamedTuple):
    """Answer to `MakePlan`: a plan, or why there is none."""

    id: int
    planned: OperationPlan | None
    error: TidelogError | None


class PlacesFound(NamedTuple):
    """Answer to `FindPlaces`: the replicas of each partition, or why there are none."""

    id: int
    places: Assignment
    error: TidelogError | None


class SnapshotRead(NamedTuple):
    """Answer to `ReadSnapshot`: the result, or the error."""

    id: int
    found: object
    error: TidelogError | None


class Tick(NamedTuple):
    """The time of `Controller.wake_at_ms` has come."""


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
    | RaiseFeatureLevel
    | DescribeFeatureLevel
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
