"""The metrics of every service.

Ages are exported instead of times, so that a clock that jumps does not distort graphs.
"""

from __future__ import annotations

from itertools import product

from tidelog.caller_limits import SERVICE_LIMITS
from tidelog.state_changes.event import Kind, Stage
from tidelog_runtime.telemetry.metrics.metric import counter, gauge, histogram

# Seconds; from a write to the page cache to the end of a long poll.
REQUEST_BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
STORE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LOOP_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
CHANGE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

STORE_OPERATIONS = ("get", "snapshot", "transact", "grant_lease")
# Series beyond those known in advance: kinds and causes of a newer library.
MAX_OTHER_SERIES = 16

BUILD_INFO = gauge(
    "tidelog_build_info",
    "Always 1; its labels name the service, its cluster and its version.",
    "Join it to other series by instance to see whose they are.",
    labels=("service", "cluster", "version"),
    bound=1,
)
EVENT_LOOP_LAG = histogram(
    "tidelog_event_loop_lag_seconds",
    "How late the service's event loop ran a timer.",
    "Above 0.1 s every request waits: find a paused or starved process, a slow disk, or "
    "more load than one core carries.",
    buckets=LOOP_BUCKETS,
)
EVENT_LOOP_SILENT = gauge(
    "tidelog_event_loop_silent_seconds",
    "For how long the service's event loop has run no timer.",
    "Above 3 s the service counts as dead: check its CPU, its disk and its stack (py-spy).",
)
SCRAPE_COLLECTION = gauge(
    "tidelog_scrape_collection_seconds",
    "How long this scrape took to collect its values on the event loop.",
    "Above 0.2 s scrape less often.",
)
SCRAPE_TIMEOUTS = counter(
    "tidelog_scrape_timeouts_total",
    "Scrapes answered without the service's own values, because its event loop did not collect "
    "them in time.",
    "Check tidelog_event_loop_silent_seconds.",
)
STATE_CHANGES = counter(
    "tidelog_state_changes_total",
    "Stages of state changes that this service reported.",
    "See the changes themselves with `tidelog trace TOPIC/PARTITION`; failed ones say why.",
    labels=("kind", "stage"),
    series=product((kind.value for kind in Kind), (stage.value for stage in Stage)),
)
STATE_CHANGE_DURATION = histogram(
    "tidelog_state_change_duration_seconds",
    "Time from the request of a state change, in any service, to this stage of it.",
    "If it grows compare the stages: received late is the network or a busy broker, "
    "completed late its disk, acknowledged late the controller.",
    buckets=CHANGE_BUCKETS,
    labels=("kind", "stage"),
)
EVENTS_DROPPED = counter(
    "tidelog_events_dropped_total",
    "Events that were not written to the topic __state_changes.",
    "Read them in the service's log, and check whether that topic has a leader.",
)
STORE_DURATION = histogram(
    "tidelog_store_request_duration_seconds",
    "Time until etcd answered.",
    "Above 0.1 s check the disk of etcd's leader (its fsync duration).",
    buckets=STORE_BUCKETS,
    labels=("operation",),
    series=[(operation,) for operation in STORE_OPERATIONS],
)
STORE_ERRORS = counter(
    "tidelog_store_errors_total",
    "Requests that etcd did not answer, or rejected for lack of space.",
    "Check whether etcd has a quorum: records are still written and read, but no leader is "
    "elected.",
    labels=("operation",),
    series=[(operation,) for operation in STORE_OPERATIONS],
)
STORE_UNREACHABLE = gauge(
    "tidelog_store_unreachable_seconds",
    "For how long etcd has not answered this service, or has rejected its writes; 0: it does "
    "neither.",
    "Start etcd, repair the network to etcd_endpoints, or free space in etcd (`tidelog explain` "
    "says which); meanwhile no leader is elected.",
)
REQUEST_DURATION = histogram(
    "tidelog_request_duration_seconds",
    "Time until a request was answered, waits for replicas, disk and new records included; a "
    "fetch that ends without any record counts as `..._idle`.",
    "Compare acks=all with acks=leader: the difference is replication. Then check "
    "tidelog_event_loop_lag_seconds and the disk.",
    buckets=REQUEST_BUCKETS,
    labels=("request", "acks"),
)
REQUESTS_REJECTED = counter(
    "tidelog_requests_refused_total",
    "Errors answered, one for each partition of a request.",
    "Follow the comment of the code in errors.proto; `tidelog explain` says why.",
    labels=("request", "code"),
)
CLIENT_REQUESTS = gauge(
    "tidelog_client_requests",
    "Requests of clients that the service is answering, long polls among them.",
    "Above three quarters of max_client_requests, find clients that open a consumer for each task.",
)
CLIENT_REJECTIONS = counter(
    "tidelog_client_rejected_requests_total",
    "Requests that were rejected, and idle connections that were closed, because their client, or "
    "all clients, had too many at once.",
    "The service's log names the client's address and the limit; let it share one producer or "
    "consumer, or raise the setting that the label names. The limits metrics_connections... are "
    "of connections to the metrics port; unsent_answer_bytes... and answer_timeout_s are of "
    "answers that the client does not receive.",
    labels=("limit",),
    series=[(limit,) for limit in SERVICE_LIMITS],
)
QUEUE_DEPTH = gauge(
    "tidelog_queue_depth",
    "Length of each queue of this service.",
    "If one only grows, check what serves it: disk, followers, etcd or the event loop.",
    labels=("queue",),
)

SERVICE_METRICS = (
    BUILD_INFO,
    EVENT_LOOP_LAG,
    EVENT_LOOP_SILENT,
    SCRAPE_COLLECTION,
    SCRAPE_TIMEOUTS,
    STATE_CHANGES,
    EVENTS_DROPPED,
    STORE_DURATION,
    STORE_ERRORS,
    STORE_UNREACHABLE,
)
