"""The metrics of a controller.

Only the active controller exports the metrics of the cluster. A standby has no such series, so
that missing values are not mistaken for good news.
"""

from __future__ import annotations

from itertools import product

from tidelog.errors import ErrorCode
from tidelog.inspection.gateway_reports import GATEWAY_STATES
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_runtime.telemetry.metrics.broker_catalogue import (
    MAX_PEER_SERIES,
    REPLICA_KINDS,
)
from tidelog_runtime.telemetry.metrics.metric import counter, gauge, histogram
from tidelog_runtime.telemetry.metrics.service_catalogue import (
    CLIENT_REJECTIONS,
    CLIENT_REQUESTS,
    LOOP_BUCKETS,
    MAX_OTHER_SERIES,
    QUEUE_DEPTH,
    REQUEST_DURATION,
    REQUESTS_REJECTED,
    SERVICE_METRICS,
    STATE_CHANGE_DURATION,
)

MAX_UNHEALTHY_SERIES = 200

CLEAN, UNCLEAN, NO_LEADER_ELECTED = "clean", "unclean", "nobody"
ELECTION_OUTCOMES = (CLEAN, UNCLEAN, NO_LEADER_ELECTED)
ELECTION_CAUSES = tuple(
    cause.value
    for cause in (
        Cause.TOPIC_CREATED,
        Cause.BROKER_CRASHED,
        Cause.BROKER_LEASE_ENDED,
        Cause.BROKER_RESTARTED,
        Cause.BROKER_STOPPING,
        Cause.BROKER_STOPPED,
        Cause.BROKER_JOINED,
        Cause.BROKER_GONE,
        Cause.REPLICA_RESIGNED,
        Cause.LEADER_UNREACHABLE,
        Cause.RECOVERY,
        Cause.CONSENT,
        Cause.NONE,
    )
)
DEPARTURE_CAUSES = tuple(
    cause.value
    for cause in (
        Cause.BROKER_CRASHED,
        Cause.BROKER_LEASE_ENDED,
        Cause.BROKER_RESTARTED,
        Cause.BROKER_STOPPED,
        Cause.NONE,
    )
)
ADMIN_REJECTIONS = tuple(
    code.name
    for code in ErrorCode
    if code in (ErrorCode.INTERNAL, ErrorCode.INVALID_REQUEST, ErrorCode.REQUEST_TIMED_OUT)
    or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    or ErrorCode.INVALID_TOPIC_NAME <= code <= ErrorCode.NOT_CONTROLLER
)
# All read-only requests count as one.
ADMIN_QUERIES = "describe"
ADMIN_REQUESTS = (
    "create_topic",
    "delete_topic",
    "alter_topic_config",
    "add_partitions",
    "remove_partitions",
    "recover_partitions",
    "begin_operation",
    "cancel_operation",
    "set_throttle",
    "raise_feature_level",
    "elect_preferred_leaders",
    "move_leaders",
    "set_maintenance",
    ADMIN_QUERIES,
)
# By request and code; the expected series exist from the start.
MAX_ADMIN_REJECTIONS = 160
MOVE_STATES = ("waiting", "active", "done", "dropped")
PROBLEMS = ("offline", "under_min_isr", "at_min_isr", "under_replicated", "unclean")
CONTROLLER_QUEUES = ("events", "transactions", "admin_requests")
CONTROLLER_TIMED_CHANGES = (
    *product(REPLICA_KINDS, (Stage.ACKNOWLEDGED.value,)),
    *product(
        (
            kind.value
            for kind in (
                Kind.CREATE,
                Kind.ELECTION,
                Kind.ISR_SHRINK,
                Kind.MOVE_ACTIVATED,
                Kind.MOVE_SWITCHED,
                Kind.MOVE_CANCELLED,
                Kind.TOPIC_CREATION,
                Kind.TOPIC_DELETION,
            )
        ),
        (Stage.COMPLETED.value,),
    ),
)

ADMIN_REJECTED = REQUESTS_REJECTED.of(
    product(("create_topic", "delete_topic", "recover_partitions"), ADMIN_REJECTIONS),
    MAX_ADMIN_REJECTIONS,
)
ADMIN_DURATION = REQUEST_DURATION.of((request, "") for request in ADMIN_REQUESTS)

ACTIVE = gauge(
    "tidelog_controller_active",
    "1 on the active controller, 0 on a standby.",
    "The sum must be 1. At 0 no leader is elected: check etcd and the controllers' logs.",
)
GATEWAYS = gauge(
    "tidelog_gateways",
    "Gateways (REST API and console) that announced themselves to this controller within the last "
    "day, by state: alive, silent (for ten seconds or longer) or stopped cleanly.",
    "If one is silent run `tidelog explain`: it says which, since when, and what to do.",
    labels=("state",),
    bound=len(GATEWAY_STATES),
)
CONTROLLER_EPOCH = gauge(
    "tidelog_controller_epoch",
    "Epoch of this controller's current or last term; 0: it has had none.",
    "If it rises often, controllers lose their lease: check etcd's latency.",
)
CONTROLLER_ELECTIONS = counter(
    "tidelog_controller_elections_total",
    "Times that this controller became the active one.",
    "More than restarts explain: check tidelog_store_request_duration_seconds.",
)
EVENT_DURATION = histogram(
    "tidelog_controller_event_duration_seconds",
    "Time to decide about one event.",
    "Above 0.1 s failovers wait for it: check how many partitions one event concerns.",
    buckets=LOOP_BUCKETS,
)

# The cluster, as the active controller knows it.
BROKERS = gauge(
    "tidelog_cluster_brokers",
    "Registered brokers, by state.",
    "Fewer than you run: `tidelog explain` reports which left, when and why.",
    labels=("state",),
    bound=2,
)
FEATURE_LEVEL = gauge(
    "tidelog_cluster_feature_level",
    "Feature level of the cluster. It only rises.",
    "After an upgrade raise it with `tidelog cluster upgrade`, once no way back is needed.",
)
TOPICS = gauge(
    "tidelog_cluster_topics",
    "Topics of the cluster.",
    "Compare with what you expect: a topic that was deleted by mistake shows here.",
)
PARTITIONS = gauge(
    "tidelog_cluster_partitions",
    "Partitions of the cluster.",
    "Keep below some thousands for each broker: failover and scrapes grow with them.",
)
OFFLINE = gauge(
    "tidelog_cluster_offline_partitions",
    "Partitions without a leader: they can be neither written nor read.",
    "Run `tidelog explain`: it names the last in-sync broker, and when it died.",
)
CLUSTER_UNDER_REPLICATED = gauge(
    "tidelog_cluster_under_replicated_partitions",
    "Partitions whose ISR lacks a replica, those without a leader included; while one is moved, "
    "its original replicas count.",
    "Run `tidelog explain`: it names the replicas that are missing, and why.",
)
CLUSTER_UNDER_MIN_ISR = gauge(
    "tidelog_cluster_under_min_isr_partitions",
    "Partitions whose ISR is below min ISR: acks=all is rejected, the high watermark is stalled.",
    "Bring replicas back at once; `tidelog explain` names them.",
)
CLUSTER_AT_MIN_ISR = gauge(
    "tidelog_cluster_at_min_isr_partitions",
    "Partitions whose ISR is at min ISR, and lacks a replica: the next loss stops writes.",
    "Bring the missing replicas back before any other broker is stopped.",
)
NOT_PREFERRED = gauge(
    "tidelog_cluster_not_preferred_leader_partitions",
    "Partitions that another replica leads than the first one assigned.",
    "After a restart leaders stay where they moved; tidelog_broker_leaders shows whether brokers "
    "are uneven.",
)
UNCLEAN_PARTITIONS = gauge(
    "tidelog_cluster_unclean_partitions",
    "Partitions whose current epoch began with an unclean election: records may be gone.",
    "Run `tidelog explain` for how many, and inform the topic's owners.",
)
UNHEALTHY_PARTITION = gauge(
    "tidelog_cluster_unwell_partition",
    "1 for each unhealthy partition, by problem; the worst only.",
    "Run `tidelog explain TOPIC/PARTITION`.",
    labels=("topic", "partition", "problem"),
    bound=MAX_UNHEALTHY_SERIES,
)
DELETIONS = gauge(
    "tidelog_cluster_topic_deletions",
    "Topics whose deletion is not finished.",
    "Run `tidelog explain TOPIC`: it names the brokers that it waits for.",
)
OPERATIONS = gauge(
    "tidelog_cluster_operations",
    "Operations that have not ended: reassignments, brokers that are added or removed, and so on.",
    "Compare with tidelog_cluster_moves for how far they are.",
)
MOVES = gauge(
    "tidelog_cluster_moves",
    "Moves of partitions of these operations, by state; waiting ones have not begun.",
    "If some wait and none is active, `tidelog explain` says what holds them back.",
    labels=("state",),
    bound=len(MOVE_STATES),
)
MOVING = gauge(
    "tidelog_cluster_moving_partitions",
    "Partitions that are being reassigned, or rolled back.",
    "See tidelog_follower_adding_lag_bytes for what is left to copy.",
)
BACKLOG = gauge(
    "tidelog_state_change_backlog_partitions",
    "Partitions whose newest state a broker has not acknowledged.",
    "If it does not fall for seconds, check that broker: `tidelog explain broker N`.",
    labels=("broker",),
    bound=MAX_PEER_SERIES,
)
BACKLOG_AGE = gauge(
    "tidelog_state_change_backlog_age_seconds",
    "For how long the oldest of them has waited.",
    "Beyond command_timeout_ms the broker is overdue: check whether it is paused or cut off.",
    labels=("broker",),
    bound=MAX_PEER_SERIES,
)
OVERDUE = gauge(
    "tidelog_state_change_overdue",
    "1 while a live broker has not acknowledged a command within command_timeout_ms.",
    "Check that broker's event loop and log; the command is sent again automatically.",
    labels=("broker",),
    bound=MAX_PEER_SERIES,
)

# Events that this controller decided.
ELECTIONS = counter(
    "tidelog_elections_total",
    "Elections of partition leaders, by outcome and cause; `nobody`: none could be elected.",
    "Check the cause: for broker_crashed, check that broker's log and machine.",
    labels=("outcome", "cause"),
    series=product(ELECTION_OUTCOMES, ELECTION_CAUSES),
    bound=MAX_OTHER_SERIES,
)
UNCLEAN_ELECTIONS = counter(
    "tidelog_unclean_elections_total",
    "Elections of a leader that may lack records that were committed.",
    "Find out with `tidelog trace TOPIC/PARTITION` what may be lost, and inform the topic's "
    "owners.",
)
CONTROLLER_ISR_SHRINKS = counter(
    "tidelog_controller_isr_shrinks_total",
    "Times that the controller took replicas out of an ISR, because their broker has gone.",
    "Check tidelog_broker_departures_total for why they went.",
    labels=("cause",),
    series=[(cause,) for cause in ELECTION_CAUSES],
    bound=MAX_OTHER_SERIES,
)
DEPARTURES = counter(
    "tidelog_broker_departures_total",
    "Brokers that left the cluster, by cause.",
    "Check that broker's log and machine, unless an operator stopped it.",
    labels=("cause",),
    series=[(cause,) for cause in DEPARTURE_CAUSES],
    bound=MAX_OTHER_SERIES,
)
COMMANDS_OVERDUE = counter(
    "tidelog_commands_overdue_total",
    "Times that a live broker did not acknowledge a command within command_timeout_ms.",
    "Check that broker with `tidelog explain broker N`.",
)

CLUSTER_METRICS = (
    BROKERS,
    FEATURE_LEVEL,
    TOPICS,
    PARTITIONS,
    OFFLINE,
    CLUSTER_UNDER_REPLICATED,
    CLUSTER_UNDER_MIN_ISR,
    CLUSTER_AT_MIN_ISR,
    NOT_PREFERRED,
    UNCLEAN_PARTITIONS,
    UNHEALTHY_PARTITION,
    DELETIONS,
    OPERATIONS,
    MOVES,
    MOVING,
    BACKLOG,
    BACKLOG_AGE,
    OVERDUE,
)
CONTROLLER_METRICS = (
    *SERVICE_METRICS,
    STATE_CHANGE_DURATION.of(CONTROLLER_TIMED_CHANGES),
    ADMIN_DURATION,
    ADMIN_REJECTED,
    QUEUE_DEPTH.of((queue,) for queue in CONTROLLER_QUEUES),
    CLIENT_REQUESTS,
    CLIENT_REJECTIONS,
    ACTIVE,
    GATEWAYS,
    CONTROLLER_EPOCH,
    CONTROLLER_ELECTIONS,
    EVENT_DURATION,
    *CLUSTER_METRICS,
    ELECTIONS,
    UNCLEAN_ELECTIONS,
    CONTROLLER_ISR_SHRINKS,
    DEPARTURES,
    COMMANDS_OVERDUE,
)
