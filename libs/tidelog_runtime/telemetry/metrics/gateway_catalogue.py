"""The metrics of the REST gateway."""

from __future__ import annotations

from tidelog.caller_limits import GATEWAY_LIMITS
from tidelog_runtime.telemetry.metrics.metric import counter, gauge, histogram
from tidelog_runtime.telemetry.metrics.service_catalogue import (
    BUILD_INFO,
    CLIENT_REJECTIONS,
    EVENT_LOOP_LAG,
    EVENT_LOOP_SILENT,
    REQUEST_BUCKETS,
    SCRAPE_COLLECTION,
    SCRAPE_TIMEOUTS,
)

# By route, method and status; all unknown routes count as one.
MAX_REQUEST_SERIES = 800
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "other")

GATEWAY_REQUESTS = counter(
    "tidelog_gateway_requests_total",
    "Requests answered, by route, method and status.",
    "Check answers of 500 and above in the gateway's log; `tidelog explain` reports what is wrong "
    "with the cluster.",
    labels=("route", "method", "status"),
    bound=MAX_REQUEST_SERIES,
)
GATEWAY_DURATION = histogram(
    "tidelog_gateway_request_duration_seconds",
    "Time until the answer to a request began, waits for the cluster included.",
    "Compare with tidelog_request_duration_seconds of the controller: the rest is the gateway.",
    buckets=REQUEST_BUCKETS,
    labels=("method",),
    series=[(method,) for method in METHODS],
)
GATEWAY_PENDING = gauge(
    "tidelog_gateway_pending_requests",
    "Requests that are being answered.",
    "Near max_concurrent_requests, find the client that sends so many.",
)
GATEWAY_STREAMS = gauge(
    "tidelog_gateway_open_streams",
    "Streams of events that are open.",
    "Near max_concurrent_streams, find the client that does not close them.",
)
GATEWAY_SEARCHES = gauge(
    "tidelog_gateway_running_searches",
    "Searches of records that are running.",
    "Near max_concurrent_searches, find the clients that search; have them use a key or range.",
)
GATEWAY_SEARCHED = counter(
    "tidelog_gateway_searched_records_total",
    "Records that searches have scanned.",
    "If it grows fast, searches take the gateway's and the brokers' time: let them scan less.",
)
GATEWAY_OVERVIEW_AGE = gauge(
    "tidelog_gateway_overview_age_seconds",
    "Age of the oldest part of the overview; it grows while no client requests it.",
    "Check `parts` of /v1/cluster/overview: it names what does not answer.",
)

# An alert on this metric covers gateways, too.
GATEWAY_REJECTIONS = CLIENT_REJECTIONS.of((limit,) for limit in GATEWAY_LIMITS)

GATEWAY_METRICS = (
    BUILD_INFO,
    EVENT_LOOP_LAG,
    EVENT_LOOP_SILENT,
    SCRAPE_COLLECTION,
    SCRAPE_TIMEOUTS,
    GATEWAY_REQUESTS,
    GATEWAY_DURATION,
    GATEWAY_PENDING,
    GATEWAY_STREAMS,
    GATEWAY_SEARCHES,
    GATEWAY_SEARCHED,
    GATEWAY_OVERVIEW_AGE,
    GATEWAY_REJECTIONS,
)
