"""Replies to admin requests, besides the fields of `AdminReply`.

Plain values; `admin.proto` documents the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.admin_messages import (
    BrokerShare,
    ConfigChange,
    ConfigEntry,
    ProcessVersion,
    Progress,
)
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog_controller.policies.restart_check import Effect, Finding
from tidelog_controller.state.admin_requests import Assignment
from tidelog_controller.state.metadata_records import Partition
from tidelog_controller.state.operation_registry import MoveState
from tidelog_runtime.metadata.operations import OperationEntry, OperationMove
from tidelog_runtime.metadata.schema import BrokerRegistration, Departure, TopicEntry
from tidelog_runtime.replica_control import ReplicaSummary


class PartitionsAnswer(NamedTuple):
    """Added or removed partitions, with a topic or by themselves.

    - `partitions`: their number.
    - `revision`: the topic's; 0: it has none.
    - `brokers`: the brokers with replicas that a removal would delete.
    """

    partitions: int = 0
    revision: int = 0
    assignment: Assignment = ()
    brokers: tuple[int, ...] = ()


class ConfigAnswer(NamedTuple):
    changes: tuple[ConfigChange, ...] = ()
    revision: int = 0


class PlanSummary(NamedTuple):
    """The summary of a plan.

    - `moves`: all of them in a dry run, else none.
    - `minimum`: None for moves that a request named.
    - `warnings`: arguments against the plan, as text for people.
    - `digest`: the digest of the moves; empty: there is no plan to be carried out.
    """

    moves: tuple[OperationMove, ...]
    move_count: int
    replicas_added: int
    leaders_changed: int
    minimum: int | None
    brokers: tuple[BrokerShare, ...]
    warnings: tuple[str, ...] = ()
    digest: str = ""


class OperationView(NamedTuple):
    operation_id: str
    entry: OperationEntry
    revision: int
    progress: Progress


class OperationAnswer(NamedTuple):
    """`operation` None: a dry run."""

    operation: OperationView | None = None
    plan: PlanSummary | None = None


class MoveView(NamedTuple):
    """`bytes_to_copy`, `bytes_copied`: None: nothing is copied, or it is not measured yet."""

    move: OperationMove
    state: MoveState
    waits_for: tuple[int, ...]
    bytes_to_copy: int | None = None
    bytes_copied: int | None = None


class OperationMovesAnswer(NamedTuple):
    operation: OperationView
    moves: tuple[MoveView, ...]
    next_page_token: str


class OperationsAnswer(NamedTuple):
    operations: tuple[OperationView, ...]
    next_page_token: str


class ThrottleAnswer(NamedTuple):
    """Rates of None: unlimited. `revision` 0: the throttle was never set."""

    bytes_per_second: int | None
    before: int | None
    revision: int


class LevelAnswer(NamedTuple):
    """The feature level, and `before` the one before the request. `newest`: of the controller's
    release. `processes`: the registered brokers and controllers."""

    level: int
    before: int
    newest: int
    revision: int
    processes: tuple[ProcessVersion, ...]


class LeaderResult(NamedTuple):
    """The result of one partition.

    - `before`, `leader`: the leader at the time of the request, and the requested one.
    - `error`: None: done, or possible in a dry run.
    """

    partition: TopicPartition
    before: int
    leader: int
    error: TidelogError | None


class LeadersAnswer(NamedTuple):
    """`kept`: the number of partitions that brokers in maintenance continue to lead."""

    results: tuple[LeaderResult, ...]
    kept: int


class RestartAnswer(NamedTuple):
    safe: bool
    counts: Mapping[Effect, int]
    findings: tuple[Finding, ...]
    next_page_token: str


class BrokerView(NamedTuple):
    """`registration` None: the broker is gone. `not_added`: it has only registered."""

    broker_id: int
    registration: BrokerRegistration | None
    broker_epoch: int
    departure: Departure | None
    maintenance: bool
    removed: bool
    replicas: int
    leaders: int
    preferred_leaders: int
    out_of_sync: int
    moves_in: int
    moves_out: int
    not_added: bool = False


class BrokersAnswer(NamedTuple):
    brokers: tuple[BrokerView, ...]


class TopicView(NamedTuple):
    """`partitions`: those of the page; None: not placed yet."""

    name: str
    entry: TopicEntry
    config: tuple[ConfigEntry, ...]
    revision: int
    deleting: bool
    partitions_being_removed: int
    partitions: tuple[tuple[int, Partition | None], ...]
    internal: bool


class TopicsAnswer(NamedTuple):
    topics: tuple[TopicView, ...]
    next_page_token: str


class SurvivorView(NamedTuple):
    """One replica of a partition without a leader.

    - `log`: None: unknown, for the reason in `problem`.
    - `whole`: it has lost nothing.
    - `lost_records`: the number of lost records if it led; -1: unknown.
    """

    broker_id: int
    problem: str
    log: ReplicaSummary | None
    whole: bool
    lost_records: int


class RecoveryView(NamedTuple):
    """A partition without a leader. `last_known`: its last-known members."""

    name: TopicPartition
    held: Partition
    last_known: tuple[int, ...]
    waits_for: str
    survivors: tuple[SurvivorView, ...]


class RecoveryAnswer(NamedTuple):
    partitions: tuple[RecoveryView, ...]
    next_page_token: str


Answer = (
    PartitionsAnswer
    | ConfigAnswer
    | OperationAnswer
    | OperationMovesAnswer
    | OperationsAnswer
    | ThrottleAnswer
    | LevelAnswer
    | LeadersAnswer
    | RestartAnswer
    | BrokersAnswer
    | TopicsAnswer
    | RecoveryAnswer
)
