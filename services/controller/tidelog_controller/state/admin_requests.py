"""Admin requests to the controller's core, besides those in `events`.

Plain values; `admin.proto` documents the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.admin_messages import RecoveryChoice
from tidelog.model import TopicPartition
from tidelog_runtime.metadata.operations import OperationKind, OperationState


class Caller(NamedTuple):
    """The caller as it names itself, and its address; empty: unknown."""

    name: str = ""
    address: str = ""


UNKNOWN_CALLER = Caller()
Assignment = tuple[tuple[int, ...], ...]


class AlterTopicConfig(NamedTuple):
    """`trace_id`, here and below: the id of the request's W3C trace context; empty: none."""

    request_id: int
    topic: str
    topic_id: str
    changed: Mapping[str, str]
    unset: tuple[str, ...]
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class AddPartitions(NamedTuple):
    """`partitions`: the new total."""

    request_id: int
    topic: str
    topic_id: str
    partitions: int
    assignment: Assignment
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class RemovePartitions(NamedTuple):
    """`partitions`: the remaining number."""

    request_id: int
    topic: str
    topic_id: str
    partitions: int
    confirm_topic: str
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class RequestedReplicas(NamedTuple):
    """One requested move. `topic_id`, `original`: if set, required current values."""

    partition: TopicPartition
    target: tuple[int, ...]
    original: tuple[int, ...] = ()
    topic_id: str = ""


class Reassignment(NamedTuple):
    moves: tuple[RequestedReplicas, ...]


class Rebalancing(NamedTuple):
    pass


class AddedBrokers(NamedTuple):
    broker_ids: tuple[int, ...]


class RemovedBrokers(NamedTuple):
    broker_ids: tuple[int, ...]


class OtherFactor(NamedTuple):
    topics: tuple[str, ...]
    replication_factor: int


class Reversal(NamedTuple):
    operation_id: str


RequestedOperation = (
    Reassignment | Rebalancing | AddedBrokers | RemovedBrokers | OtherFactor | Reversal
)


class BeginOperation(NamedTuple):
    """`operation_id`: empty: the controller generates one.

    `expected_plan`: the digest of the only acceptable plan; empty: any plan.
    """

    request_id: int
    wanted: RequestedOperation
    operation_id: str
    dry_run: bool
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER
    expected_plan: str = ""


class CancelOperation(NamedTuple):
    request_id: int
    operation_id: str
    expected_revision: int
    dry_run: bool
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class SetThrottle(NamedTuple):
    """`bytes_per_second` None: unlimited."""

    request_id: int
    bytes_per_second: int | None
    expected_revision: int
    dry_run: bool
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class DescribeThrottle(NamedTuple):
    request_id: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class RaiseFeatureLevel(NamedTuple):
    request_id: int
    level: int
    expected_revision: int
    dry_run: bool
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class DescribeFeatureLevel(NamedTuple):
    request_id: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class ListOperations(NamedTuple):
    request_id: int
    states: tuple[OperationState, ...]
    kinds: tuple[OperationKind, ...]
    page_size: int
    page_token: str
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class DescribeOperation(NamedTuple):
    request_id: int
    operation_id: str
    page_size: int
    page_token: str
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class PartitionSelector(NamedTuple):
    """`partitions` empty: all of the topic."""

    topic: str
    partitions: tuple[int, ...] = ()


class ElectPreferredLeaders(NamedTuple):
    """`selectors` empty: all partitions of all topics."""

    request_id: int
    selectors: tuple[PartitionSelector, ...]
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class MoveLeaders(NamedTuple):
    """`moves`: partitions, each with the leader that it is to have."""

    request_id: int
    moves: tuple[tuple[TopicPartition, int], ...]
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class SetMaintenance(NamedTuple):
    request_id: int
    broker_ids: tuple[int, ...]
    maintenance: bool
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class CheckRestart(NamedTuple):
    request_id: int
    broker_id: int
    page_size: int
    page_token: str
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class DescribeBrokers(NamedTuple):
    """`broker_ids` empty: all."""

    request_id: int
    broker_ids: tuple[int, ...]
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class DescribeTopics(NamedTuple):
    """`topics` empty: all."""

    request_id: int
    topics: tuple[str, ...]
    internal: bool
    without_partitions: bool
    page_size: int
    page_token: str
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER


class DescribeRecovery(NamedTuple):
    """`topic` empty: all topics.

    Without `partitions` and `choices`: all partitions without a leader. `choices` are checked, and
    described.
    """

    request_id: int
    topic: str
    partitions: tuple[int, ...]
    timeout_ms: int
    page_size: int
    page_token: str
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER
    choices: tuple[RecoveryChoice, ...] = ()
