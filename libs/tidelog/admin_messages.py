"""The values of admin messages, one class a message, for the client, the controller and the CLI.

Fields are named as in admin.proto, which documents them; `tidelog.rpc.message_codec` converts them.
Words of enums are in lower case."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.errors import TidelogError


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    key: str
    value: str
    is_set: bool
    default_value: str
    description: str


@dataclass(frozen=True, slots=True)
class PartitionMove:
    operation_id: str
    original: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionDetails:
    """State of a partition. `move`: None: it is not being reassigned."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    min_isr: int
    revision: int
    move: PartitionMove | None
    unclean_leader_epoch: int

    @property
    def is_under_replicated(self) -> bool:
        """Replicas that a move adds count as missing only after its switch."""
        return len(self.isr) < len(self.move.original if self.move else self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """Properties of a topic. `partitions`: empty if they were not requested."""

    topic: str
    topic_id: str
    partition_count: int
    replication_factor: int
    config: tuple[ConfigEntry, ...]
    revision: int
    deleting: bool
    partitions_being_removed: int
    internal: bool
    partitions: tuple[PartitionDetails, ...]


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or in a dry run could be.

    - `pending_brokers`: brokers that have not started their replicas in time; they continue.
    - `trace_id`: 32 hexadecimal digits, carried by all events of the creation.
    - `assignment`: from a dry run; a request with it creates exactly that.
    - `warnings`: for people, for instance that a topic with a single replica is unprotected.
    """

    topic_id: str
    pending_brokers: tuple[int, ...]
    trace_id: str = ""
    assignment: tuple[tuple[int, ...], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Change of one key. `before`, `after`: effective values; empty: no value."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class AlteredConfig:
    """Result of a configuration change.

    - `changes`: empty if all values were already as requested.
    - `revision`: the current revision of the topic.
    - `warnings`: for people, about records that the changes may lose.
    """

    changes: tuple[ConfigChange, ...]
    revision: int
    pending_brokers: tuple[int, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizedTopic:
    """Result of an addition or removal of partitions, or of the plan to delete a topic.

    - `partitions`: the number of partitions that were added or removed, or in a dry run would be.
    - `assignment`: the new replicas, from a dry run of an addition.
    - `brokers`: the brokers that hold the partitions to delete, from a dry run.
    - `warnings`: for people, about deleted records, and keys that go to other partitions.
    """

    partitions: int
    revision: int
    pending_brokers: tuple[int, ...]
    assignment: tuple[tuple[int, ...], ...] = ()
    brokers: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """Result of one partition's recovery. `error`: None if it has a leader; REQUEST_TIMED_OUT if it
    has none yet, while the consent remains in effect."""

    partition: int
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class RecoveryChoice:
    """The replica to elect as leader. `expected_revision`: from `Recovery`; 0: not checked."""

    partition: int
    broker_id: int
    expected_revision: int = 0


@dataclass(frozen=True, slots=True)
class Survivor:
    """The log of one replica of a partition without a leader.

    - `described`: the fields below describe the log; if false, `problem` says why they do not.
    - `last_epoch`: leader epoch of the last batch; -1: the log is empty.
    - `whole`: the replica is intact.
    - `lost_records`: records that are lost if this replica becomes leader; None: not known.
    - `high_watermark`: None: the broker did not report it.
    """

    broker_id: int
    described: bool
    problem: str
    last_epoch: int
    log_start_offset: int
    log_end_offset: int
    whole: bool
    lost_records: int | None
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """A partition without a leader, and the logs of its replicas."""

    topic: str
    topic_id: str
    partition: int
    revision: int
    last_known: tuple[int, ...]
    waits_for: str
    survivors: tuple[Survivor, ...] = field(metadata={"wire_name": "replicas"})


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a partition.

    - `target`: replicas after the move; the first is the preferred one.
    - `original`, `topic_id`: current values that the move expects; empty: not checked.
    """

    topic: str
    partition: int
    target: tuple[int, ...]
    original: tuple[int, ...] = ()
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class BrokerShare:
    """Share of a broker. `leaders_before`, `leaders_after`: partitions that prefer it as leader."""

    broker_id: int
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of an operation.

    - `moves`: all of them in a dry run, else none.
    - `minimum_replicas_added`: None: the caller chose the moves.
    - `warnings`: for people.
    - `digest`: of the moves; a request with it carries out this plan and no other.
    """

    moves: tuple[Move, ...]
    move_count: int
    replicas_added: int
    leaders_changed: int
    minimum_replicas_added: int | None
    brokers: tuple[BrokerShare, ...]
    warnings: tuple[str, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an operation.

    - `estimated_end_ms`: wall clock; 0: no estimate.
    - `moves_unmeasured`: moves that the sums of bytes leave out, because no leader has reported
      their bytes.
    """

    moves: int
    moves_done: int
    moves_active: int
    moves_dropped: int
    replicas_to_add: int
    replicas_added: int
    estimated_end_ms: int
    bytes_to_copy: int = 0
    bytes_copied: int = 0
    bytes_per_second: int = 0
    moves_unmeasured: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation.

    - `kind`: such as "rebalance".
    - `state`: running, cancelling, done, cancelled or failed.
    """

    operation_id: str
    kind: str
    state: str
    reason: str
    request: str
    requested_by: str
    requested_from: str
    requested_at_ms: int
    ended_at_ms: int
    trace_id: str
    progress: Progress
    revision: int

    @property
    def has_ended(self) -> bool:
        return self.state not in ("running", "cancelling")


@dataclass(frozen=True, slots=True)
class AcceptedOperation:
    """A started operation and its plan. `operation`: None in a dry run."""

    operation: Operation | None
    plan: Plan


# Former name, until version 0.3.0 (FORMER_NAMES_END).
BegunOperation = AcceptedOperation


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """Progress of one move.

    - `state`: waiting, active, done or dropped.
    - `bytes_to_copy`, `bytes_copied`: None: nothing is copied, or no leader has reported it.
    """

    move: Move
    state: str
    waits_for: tuple[int, ...]
    bytes_to_copy: int | None = None
    bytes_copied: int | None = None


@dataclass(frozen=True, slots=True)
class Throttle:
    """Bandwidth limit of moves. `bytes_per_second` None: unlimited. `revision` 0: never set."""

    bytes_per_second: int | None
    revision: int


@dataclass(frozen=True, slots=True)
class ProcessVersion:
    """A registered process: `role` is broker or controller. `version`: empty for a release that
    reports none."""

    role: str
    id: int
    address: str
    version: str
    oldest_level: int
    newest_level: int

    def supports(self, level: int) -> bool:
        return self.oldest_level <= level <= self.newest_level

    def __str__(self) -> str:
        return f"{self.role} {self.id}"


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """The feature level of the cluster.

    - `newest_level`: the newest one that the active controller supports.
    - `revision`: for `expected_revision` of a change.
    """

    level: int
    newest_level: int
    revision: int
    processes: tuple[ProcessVersion, ...]

    @property
    def raisable_level(self) -> int:
        """The highest level that all processes support, or the present one."""
        newest = min((self.newest_level, *(p.newest_level for p in self.processes)))
        return max(newest, self.level)


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """Change of one leader. `error`: None if `leader` leads, or in a dry run would."""

    topic: str
    partition: int
    leader_before: int
    leader: int
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class RestartFinding:
    """A partition that a restart affects. `effect`: unavailable, under_min_isr, last_replica or
    leader_moves."""

    topic: str
    partition: int
    effect: str
    reason: str


@dataclass(frozen=True, slots=True)
class RestartCheck:
    """Effects of a restart. `safe`: no partition becomes unavailable or falls below min ISR."""

    safe: bool
    unavailable: int
    under_min_isr: int
    last_replica: int
    leader_moves: int
    findings: tuple[RestartFinding, ...]


@dataclass(frozen=True, slots=True)
class BrokerDetails:
    """State of a broker.

    - `status`: running, stopping or gone.
    - `gone_at_ms`: 0: it is not gone, or the time is not known.
    - `not_added`: it is only registered.
    """

    broker_id: int
    status: str
    address: str
    rack: str
    broker_epoch: int
    maintenance: bool
    removed: bool
    replicas: int
    leaders: int
    preferred_leaders: int
    out_of_sync: int
    moves_in: int
    moves_out: int
    gone_at_ms: int
    not_added: bool = False
