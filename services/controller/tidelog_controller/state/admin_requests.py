"""What administrators ask of the controller's core, besides what `events` has. Plain values;
`admin.proto` documents the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_runtime.metadata.operations import OperationKind, OperationState


class Asker(NamedTuple):
    """Who asks, as they say, and from which address; empty: not known."""

    name: str = ""
    address: str = ""


NOBODY = Asker()
Assignment = tuple[tuple[int, ...], ...]


class AlterTopicConfig(NamedTuple):
    """`trace_id`, here and below: of the request's W3C trace context; empty: none."""

    request_id: int
    topic: str
    topic_id: str
    changed: Mapping[str, str]
    unset: tuple[str, ...]
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY


class AddPartitions(NamedTuple):
    """`partitions`: in all."""

    request_id: int
    topic: str
    topic_id: str
    partitions: int
    assignment: Assignment
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY


class RemovePartitions(NamedTuple):
    """`partitions`: that are left."""

    request_id: int
    topic: str
    topic_id: str
    partitions: int
    confirm_topic: str
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY


class WantedReplicas(NamedTuple):
    """One move by hand. `topic_id`, `original`: where not empty, only as long as they are so."""

    partition: TopicPartition
    target: tuple[int, ...]
    original: tuple[int, ...] = ()
    topic_id: str = ""


class Reassignment(NamedTuple):
    moves: tuple[WantedReplicas, ...]


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


OperationWanted = (
    Reassignment | Rebalancing | AddedBrokers | RemovedBrokers | OtherFactor | Reversal
)


class BeginOperation(NamedTuple):
    """`operation_id`: empty: one is given. `expected_plan`: digest of the plan that alone is to
    be carried out; empty: whatever the plan is."""

    request_id: int
    wanted: OperationWanted
    operation_id: str
    dry_run: bool
    trace_id: str = ""
    asker: Asker = NOBODY
    expected_plan: str = ""


class CancelOperation(NamedTuple):
    request_id: int
    operation_id: str
    expected_revision: int
    dry_run: bool
    trace_id: str = ""
    asker: Asker = NOBODY


class SetThrottle(NamedTuple):
    """`bytes_per_second` None: without bound."""

    request_id: int
    bytes_per_second: int | None
    expected_revision: int
    dry_run: bool
    trace_id: str = ""
    asker: Asker = NOBODY


class DescribeThrottle(NamedTuple):
    request_id: int
    trace_id: str = ""
    asker: Asker = NOBODY


class ListOperations(NamedTuple):
    request_id: int
    states: tuple[OperationState, ...]
    kinds: tuple[OperationKind, ...]
    page_size: int
    page_token: str
    trace_id: str = ""
    asker: Asker = NOBODY


class DescribeOperation(NamedTuple):
    request_id: int
    operation_id: str
    page_size: int
    page_token: str
    trace_id: str = ""
    asker: Asker = NOBODY


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
    asker: Asker = NOBODY


class MoveLeaders(NamedTuple):
    """`moves`: partitions, and who is to lead each."""

    request_id: int
    moves: tuple[tuple[TopicPartition, int], ...]
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY


class SetMaintenance(NamedTuple):
    request_id: int
    broker_ids: tuple[int, ...]
    maintenance: bool
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY


class CheckRestart(NamedTuple):
    request_id: int
    broker_id: int
    page_size: int
    page_token: str
    trace_id: str = ""
    asker: Asker = NOBODY


class DescribeBrokers(NamedTuple):
    """`broker_ids` empty: all."""

    request_id: int
    broker_ids: tuple[int, ...]
    trace_id: str = ""
    asker: Asker = NOBODY


class DescribeTopics(NamedTuple):
    """`topics` empty: all."""

    request_id: int
    topics: tuple[str, ...]
    internal: bool
    without_partitions: bool
    page_size: int
    page_token: str
    trace_id: str = ""
    asker: Asker = NOBODY


class RecoveryChoice(NamedTuple):
    """`expected_revision`: of the partition's key as described; 0: any."""

    partition: int
    broker_id: int
    expected_revision: int = 0


class DescribeRecovery(NamedTuple):
    """`topic` empty: all topics. Neither `partitions` nor `choices`: all that have no leader.
    `choices` are checked and looked at."""

    request_id: int
    topic: str
    partitions: tuple[int, ...]
    timeout_ms: int
    page_size: int
    page_token: str
    trace_id: str = ""
    asker: Asker = NOBODY
    choices: tuple[RecoveryChoice, ...] = ()
