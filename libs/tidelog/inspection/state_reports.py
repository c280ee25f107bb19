"""The states of services, as plain values. `inspect.proto` documents each field under the same
name; `tidelog.rpc.message_codec` relies on that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.caller_limits import LimitedClient
from tidelog.errors import TidelogError
from tidelog.inspection import controller_reports as reports
from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.inspection.resource_pressures import BrokerPressure, ControllerPressure

NOT_KNOWN = -1
REJECTS_LEADER = "rejects_leader"  # the failure of a replica whose log its leader's do not follow
# Answers of the metadata store count as slow from here on; etcd takes a few milliseconds.
STORE_SLOW_MS = 500
RESERVE_FILES = 16  # inodes that a broker keeps for its state files; they do not count as free
WITHOUT_MAJORITY = "answers, but reads need a majority"  # in the problem of a StoreMember
# The least time that explain gives each service. A healthy service needs it to describe some
# thousands of replicas on a busy machine; a late answer would be reported as a fault.
LEAST_ANSWER_MS = 500
# Phases of a broker's start, in this order.
WAITS_FOR_STORE, OPENS_LOGS, READS_METADATA = "store", "logs", "metadata"
REGISTERS, TAKES_STATES, STARTED = "registration", "states", ""
# How the broker's previous process ended, by the files that it left in the data directory.
STOPPED, CRASHED, REBOOTED = "stopped", "crashed", "rebooted"
_BEFORE_METADATA = frozenset({WAITS_FOR_STORE, OPENS_LOGS, READS_METADATA})


@dataclass(frozen=True, slots=True)
class StoreMember:
    address: str
    unreachable_ms: int = NOT_KNOWN
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    unreachable_ms: int = NOT_KNOWN
    problem: str = ""
    last_latency_ms: int = NOT_KNOWN
    max_latency_ms: int = NOT_KNOWN
    max_latency_ago_ms: int = NOT_KNOWN
    quick_answers_ms: Sequence[int] = ()
    last_slow_ago_ms: int = NOT_KNOWN
    failed_tries: int = 0
    members: Sequence[StoreMember] = ()
    write_problem: str = ""
    rejects_writes_ms: int = NOT_KNOWN


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    broker_id: int
    broker_epoch: int
    address: str
    state: str
    rack: str = ""
    whole_since: int = 0
    synced_whole_since: int = 0
    directory_id: str = ""
    host: str = ""
    data_dir: str = ""
    not_intact_reason: str = ""


@dataclass(frozen=True, slots=True)
class RegisteredController:
    controller_id: int
    address: str
    started_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class MissingController:
    controller_id: int
    address: str
    seen_at_ms: int
    stopped_at_ms: int = 0
    fault: str = ""
    fault_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Departure:
    broker_id: int
    broker_epoch: int
    at_ms: int
    cause: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class RejectedStart:
    """A process that does not start as this broker, or that waits for another one."""

    broker_id: int
    at_ms: int
    cause: str
    reason: str
    address: str = ""
    host: str = ""
    data_dir: str = ""
    directory_id: str = ""
    has_run_since: bool = False
    after_registration: bool = False


@dataclass(frozen=True, slots=True)
class FollowerProgress:
    broker_id: int
    broker_epoch: int = 0
    in_isr: bool = False
    log_end_offset: int = NOT_KNOWN
    lag_records: int = NOT_KNOWN
    lag_bytes: int = NOT_KNOWN
    lag_ms: int = NOT_KNOWN
    last_fetch_ms: int = NOT_KNOWN
    last_caught_up_ms: int = NOT_KNOWN
    session_id: int = 0


@dataclass(frozen=True, slots=True)
class WaitingConsumer:
    offset: int
    fetches: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class LeaderState:
    hw_stalled_ms: int = NOT_KNOWN
    maximal_isr: Sequence[int] = ()
    followers: Sequence[FollowerProgress] = ()
    refused_below_min_isr: int = 0
    last_refused_ms: int = NOT_KNOWN
    waiting_consumers: Sequence[WaitingConsumer] = ()
    written_bytes_per_second: int | None = None
    most_written_bytes_per_second: int | None = None
    min_isr: int = 0


@dataclass(frozen=True, slots=True)
class FollowerState:
    leader: int
    last_answer_ms: int = NOT_KNOWN
    problem: str = ""
    problem_ms: int = NOT_KNOWN
    answered: bool = False


@dataclass(frozen=True, slots=True)
class DamagedOffsets:
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class DivergedOffsets:
    broker_id: int
    first_offset: int
    next_offset: int
    digest: str
    other_digest: str
    batch_offset: int = NOT_KNOWN
    batch: str = ""
    other_batch: str = ""
    segments: Sequence[str] = ()
    other_segments: Sequence[str] = ()
    found_at_ms: int = 0
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    topic: str
    topic_id: str
    partition: int
    role: str
    leader_epoch: int
    revision: int
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    flushed_offset: int = 0
    size_bytes: int = 0
    synced: bool = False
    failure: str = ""
    failure_message: str = ""
    failure_ms: int = NOT_KNOWN
    leader: LeaderState | None = None
    follower: FollowerState | None = None
    moving: str = ""
    failed_leader_epoch: int = NOT_KNOWN
    damaged: Sequence[DamagedOffsets] = ()
    diverged: Sequence[DivergedOffsets] = ()
    hang_over_in_ms: int = NOT_KNOWN


@dataclass(frozen=True, slots=True)
class HeardBroker:
    broker_id: int
    last_fetch_ms: int = NOT_KNOWN
    last_answer_ms: int = NOT_KNOWN
    unanswered_ms: int = NOT_KNOWN


@dataclass(frozen=True, slots=True)
class RejectedRequests:
    topic: str
    reason: str
    count: int
    last_ms: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class KeyPlacement:
    key_hash: int
    is_standard: bool
    last_ms: int


@dataclass(frozen=True, slots=True)
class SampledKeys:
    topic: str
    partition: int
    partitions: int
    keys: Sequence[KeyPlacement] = ()


@dataclass(frozen=True, slots=True)
class RecentElections:
    controllers: int = 0
    registrations_lost: int = 0
    leaders: int = 0
    topic: str = ""
    partition: int = NOT_KNOWN
    window_ms: int = 0
    last_ms: int = NOT_KNOWN
    standstills: int = 0
    longest_standstill_ms: int = 0
    last_standstill_ms: int = NOT_KNOWN


@dataclass(frozen=True, slots=True)
class HeardClock:
    broker_id: int
    skew_ms: int


@dataclass(frozen=True, slots=True)
class ClockDoubt:
    reason: str
    ahead_ms: int
    for_ms: int


@dataclass(frozen=True, slots=True)
class RepairedDamage:
    topic: str
    partition: int
    found_at_ms: int
    repaired_at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerState:
    broker_epoch: int
    state: str
    has_full_state: bool
    controller_epoch: int
    registered: Sequence[RegisteredBroker] = ()
    replicas: Sequence[ReplicaState] = ()
    replica_count: int = 0
    leader_count: int = 0
    disk_free_bytes: int = NOT_KNOWN
    controller_address: str = ""
    controllers: Sequence[RegisteredController] = ()
    departures: Sequence[Departure] = ()
    heard: Sequence[HeardBroker] = ()
    move_bytes_per_second: int = NOT_KNOWN
    start_phase: str = ""
    start_done: int = 0
    start_total: int = 0
    rejected_starts: Sequence[RejectedStart] = ()
    elections: RecentElections | None = None
    pressures: Sequence[BrokerPressure] = ()
    rejected_requests: Sequence[RejectedRequests] = ()
    sampled_keys: Sequence[SampledKeys] = ()
    previous_end: str = ""
    boot_id: str = ""
    disk_free_inodes: int = 0
    disk_inodes: int = 0
    clocks: Sequence[HeardClock] = ()
    clock_doubt: ClockDoubt | None = None
    repaired_damage: Sequence[RepairedDamage] = ()
    missing_controllers: Sequence[MissingController] = ()
    controller_pressures: Sequence[ControllerPressure] = ()

    @property
    def is_starting(self) -> bool:
        """Whether it has not received all of its replica states since it started."""
        return not self.has_full_state and self.state != "stopping"

    @property
    def has_read_metadata(self) -> bool:
        """Whether it has read the metadata store: what it does not report does not exist there."""
        return self.start_phase not in _BEFORE_METADATA


@dataclass(frozen=True, slots=True)
class PendingState:
    topic: str
    partition: int
    revision: int
    problem: str = ""
    acknowledged_revision: int = 0


@dataclass(frozen=True, slots=True)
class BrokerBacklog:
    broker_id: int
    broker_epoch: int
    pending: int
    oldest_ms: int
    overdue: bool
    first: Sequence[PendingState] = ()
    problem: str = ""
    desired_revision: int = 0
    acknowledged_revision: int = 0
    working_ms: int = 0
    acknowledged: int = 0
    last_acknowledged_ms: int = 0
    known_for_ms: int = NOT_KNOWN
    full_state_size: int = 0


@dataclass(frozen=True, slots=True)
class WaitingDeletion:
    topic: str
    topic_id: str
    waiting_ms: int
    brokers: Sequence[int] = ()
    first_partition: int = 0


@dataclass(frozen=True, slots=True)
class StandingOperation:
    operation: str
    kind: str
    cancelling: bool = False
    moves_waiting: int = 0
    moves_active: int = 0
    moves_done: int = 0
    not_ready: Sequence[int] = ()
    busy: Sequence[int] = ()
    without_leader: int = 0


@dataclass(frozen=True, slots=True)
class InSyncMember:
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionMoveState:
    operation: str
    original: Sequence[int]
    target: Sequence[int]
    cancelled: bool = False
    waits_for: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class PartitionKeyState:
    topic: str
    topic_id: str
    partition: int
    replicas: Sequence[int]
    leader: int
    leader_epoch: int
    isr: Sequence[InSyncMember]
    eligible: Sequence[InSyncMember]
    min_isr: int
    unclean_leader_epoch: int
    revision: int
    change_id: str = ""
    change_cause: str = ""
    changed_at_ms: int = 0
    lost_records: int = NOT_KNOWN
    recovery: str = "balanced"
    unclean_leader_election: bool = False
    synced: bool = False
    move: PartitionMoveState | None = None
    replication_factor: int = 0
    unclean_elected_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ControllerState:
    active: bool
    controller_epoch: int
    active_address: str = ""
    backlogs: Sequence[BrokerBacklog] = ()
    departures: Sequence[Departure] = ()
    deletions: Sequence[WaitingDeletion] = ()
    partitions: Sequence[PartitionKeyState] = ()
    partition_count: int = 0
    revision: int = 0
    registered: Sequence[RegisteredBroker] = ()
    controllers: Sequence[RegisteredController] = ()
    operations: Sequence[StandingOperation] = ()
    missing_controllers: Sequence[MissingController] = ()
    pressures: Sequence[BrokerPressure] = ()
    rejected_starts: Sequence[RejectedStart] = ()
    in_maintenance: Sequence[int] = ()
    gateways: Sequence[AnnouncedGateway] = ()
    lease_ends: Sequence[reports.LeaseEnds] = ()
    crashes: Sequence[reports.ServiceCrashes] = ()
    connections: Sequence[reports.BrokerConnection] = ()
    controller_pressures: Sequence[ControllerPressure] = ()
    waiting_controllers: Sequence[reports.WaitingController] = ()
    feature_level: int = 0
    raisable_level: int = 0


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The answer to DescribeService; one of `broker` and `controller` is set."""

    role: str
    id: int
    address: str
    version: str
    started_at_ms: int
    now_ms: int
    store: StoreHealth
    events_told: int = 0
    events_dropped: int = 0
    broker: BrokerState | None = None
    controller: ControllerState | None = None
    error: TidelogError | None = None
    limited_clients: Sequence[LimitedClient] = ()


@dataclass(frozen=True, slots=True)
class StateRequest:
    """The filters of DescribeService. `partition` requires a topic."""

    topic: str = ""
    partition: int | None = None
    only_unwell: bool = False
    services_only: bool = False
    in_isr: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, its cause (a word for programs), and the next step.

    `broker` is the broker to inspect: the leader for hw_stalled, consumer_waits, under_min_isr and
    unclean_election; the preferred leader for not_preferred_leader; the missing replica for
    replica_out_of_isr; the one that the key still names for no_leader."""

    cause: str
    severity: str
    summary: str
    evidence: Sequence[str]
    next_step: str
    topic: str = ""
    partition: int = -1
    broker: int = -1
    partitions: Sequence[str] = ()
    partition_count: int = 0
    because: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the cluster to explain. Without any field it is the whole cluster."""

    topic: str = ""
    partition: int | None = None
    broker: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`findings`: empty if no service that answered reports a problem. `listening`: the `Listening`
    of each of `silent`; empty if an older service made the explanation."""

    findings: Sequence[Finding] = field(default_factory=tuple)
    asked: Sequence[str] = field(default_factory=tuple)
    silent: Sequence[str] = field(default_factory=tuple)
    listening: Sequence[str] = field(default_factory=tuple)
