"""The broker dashboard: load, waits, storage and resources of one broker or several."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from tidelog_dashboards.frame import BROKER, BROKERS, new_dashboard
from tidelog_dashboards.panels import (
    BYTES,
    BYTES_PER_SECOND,
    ERRORS_PER_SECOND,
    REQUESTS_PER_SECOND,
    SECONDS,
    SHARE,
    Panel,
    Query,
    Steps,
    graph,
    number,
    rows,
)
from tidelog_dashboards.promql import per_second, quantile

_LOOP_LAG = Steps(watch=0.1, bad=0.5)


def broker() -> dashboard.Dashboard:
    return new_dashboard(
        "tidelog-broker",
        "broker",
        "Requests, event loop, storage and resources of the selected brokers.",
        [BROKER],
        [
            ("Health", _health()),
            ("Requests", [*_requests(), *_failures()]),
            ("Waits", _waits()),
            ("Storage", _storage()),
            ("Process resources", _process()),
        ],
    )


def _by_service(metric: str) -> list[Query]:
    return [Query(f"{metric}{{{BROKERS}}}", "{{service}}")]


def _health() -> list[Panel]:
    return [
        number(
            "Brokers down",
            "Brokers that Prometheus cannot scrape. Check the process, its machine and its log.",
            f'sum(1 - up{{job="tidelog", {BROKERS}}})',
            Steps(bad=1),
        ),
        number(
            "Unregistered brokers",
            "Brokers that run but are not registered in etcd: they are not elected as leaders. "
            "Check their logs for what prevents the registration.",
            f"sum(1 - tidelog_broker_registered{{{BROKERS}}})",
            Steps(bad=1),
        ),
        number(
            "Brokers without full state",
            "Brokers that have not received their full state from a controller. Check that a "
            "controller is active and reaches them.",
            f"sum(1 - tidelog_broker_has_full_state{{{BROKERS}}})",
            Steps(watch=1),
        ),
        number(
            "Damaged replicas",
            "Replicas that can neither lead nor follow until they are repaired. Check the log for "
            "replica_damaged. If the damage lasts, check the disk.",
            f"sum(tidelog_broker_out_of_service_replicas{{{BROKERS}}})",
            Steps(bad=1),
        ),
        number(
            "Longest event loop stall",
            "Time for which an event loop has run no timer. Above 3 s the broker counts as dead: "
            "check its CPU, its disk and its stack (py-spy).",
            f"max(tidelog_event_loop_silent_seconds{{{BROKERS}}})",
            Steps(watch=1, bad=3),
            SECONDS,
        ),
        number(
            "Maximum disk usage",
            "Used share of the fullest disk. Above 90 % lower retention or add disk, before "
            "writes are rejected.",
            f"max(1 - tidelog_disk_free_bytes{{{BROKERS}}} / tidelog_disk_size_bytes{{{BROKERS}}})",
            Steps(watch=0.8, bad=0.9),
            SHARE,
        ),
    ]


def _requests() -> list[Panel]:
    records = per_second("tidelog_data_records_total", BROKERS, "service, flow")
    batches = per_second("tidelog_data_batches_total", BROKERS, "service, flow")
    return [
        graph(
            "Requests per second",
            "Requests by kind. If requests grow and bytes do not, raise the linger of producers "
            "and the fetch size of consumers.",
            Query(
                per_second(
                    "tidelog_request_duration_seconds_count", BROKERS, "service, request, acks"
                )
                + " > 0",
                "{{service}} {{request}} {{acks}}",
            ),
            REQUESTS_PER_SECOND,
        ),
        graph(
            "Request latency",
            "99th percentile, waits for replicas and disk included. Fetches that ended without "
            "new records are excluded. If only produce with acks=all is slow, check the "
            "followers. If all requests are slow, check the event loop.",
            Query(
                quantile(
                    0.99,
                    "tidelog_request_duration_seconds",
                    f'{BROKERS}, request!~".+_idle"',
                    "service, request, acks",
                ),
                "{{service}} {{request}} {{acks}}",
            ),
            SECONDS,
        ),
        graph(
            "Bytes per second by flow",
            "Bytes received and sent, by flow. Compare with the limits of network and disk.",
            Query(
                per_second("tidelog_data_bytes_total", BROKERS, "service, flow"),
                "{{service}} {{flow}}",
            ),
            BYTES_PER_SECOND,
        ),
        graph(
            "Records per batch",
            "Small batches cost CPU. If the number is low, raise the linger of producers.",
            Query(f"{records} / {batches}", "{{service}} {{flow}}"),
        ),
    ]


def _failures() -> list[Panel]:
    return [
        graph(
            "Rejected requests",
            "Errors returned, by code. Do what the comment of the code in errors.proto says; "
            "`tidelog explain` gives the reason.",
            Query(
                per_second("tidelog_requests_refused_total", BROKERS, "service, request, code")
                + " > 0",
                "{{service}} {{request}}: {{code}}",
            ),
            ERRORS_PER_SECOND,
        ),
        graph(
            "Partition health",
            "Unhealthy partitions that the broker leads, and replicas whose partition has no "
            "leader. Run `tidelog explain`: it names the missing replicas and the reason.",
            [
                Query(f"tidelog_broker_{metric}{{{BROKERS}}}", f"{{{{service}}}}: {legend}")
                for metric, legend in (
                    ("leaderless_replicas", "without a leader"),
                    ("under_min_isr_partitions", "below min ISR"),
                    ("at_min_isr_partitions", "at min ISR"),
                    ("under_replicated_partitions", "under-replicated"),
                )
            ],
        ),
    ]


def _waits() -> list[Panel]:
    return [
        graph(
            "Event loop lag",
            "99th percentile. Above 0.1 s every request waits: check for a starved process, a "
            "slow disk, or more load than one core carries.",
            Query(
                quantile(0.99, "tidelog_event_loop_lag_seconds", BROKERS, "service"),
                "{{service}}",
            ),
            SECONDS,
            _LOOP_LAG,
        ),
        graph(
            "Queue depth",
            "Waiting items, by queue. If a queue only grows, check its consumer: disk, followers, "
            "etcd or the event loop.",
            Query(f"tidelog_queue_depth{{{BROKERS}}}", "{{service}} {{queue}}"),
        ),
        graph(
            "etcd request latency",
            "99th percentile, by operation. Above 0.1 s check the disk of etcd's leader.",
            Query(
                quantile(
                    0.99,
                    "tidelog_store_request_duration_seconds",
                    BROKERS,
                    "service, operation",
                ),
                "{{service}} {{operation}}",
            ),
            SECONDS,
            Steps(watch=0.1, bad=0.5),
        ),
        graph(
            "Controller command latency",
            "90th percentile since the controller's decision, by kind and stage. If received is "
            "late, check the network and the event loop. If completed is late, check the disk.",
            Query(
                quantile(
                    0.9,
                    "tidelog_state_change_duration_seconds",
                    f'{BROKERS}, stage=~"received|completed"',
                    "service, kind, stage",
                ),
                "{{service}} {{kind}} {{stage}}",
            ),
            SECONDS,
        ),
    ]


def _storage() -> list[Panel]:
    return [
        graph(
            "Log size and free disk space",
            "Bytes of all logs, and free bytes of the disk. Lower retention or add disk before "
            "the lines meet.",
            [
                Query(f"tidelog_log_size_bytes{{{BROKERS}}}", "{{service}}: logs"),
                Query(f"tidelog_disk_free_bytes{{{BROKERS}}}", "{{service}}: free"),
            ],
            BYTES,
        ),
        graph(
            "Unflushed records",
            "Records that are not known to be synced to disk. If the number only grows, the disk "
            "is too slow or fails: check the log for flush.",
            _by_service("tidelog_log_unflushed_records"),
        ),
        graph(
            "Replicas, leaders and segments",
            "If brokers differ much, place new partitions on the emptier ones. If the number of "
            "segments is very high, raise segment_bytes.",
            [
                Query(f"tidelog_broker_replicas{{{BROKERS}}}", "{{service}}: replicas"),
                Query(f"tidelog_broker_leaders{{{BROKERS}}}", "{{service}}: leaders"),
                Query(f"tidelog_log_segments{{{BROKERS}}}", "{{service}}: segments"),
            ],
        ),
        rows(
            "Largest partitions",
            "The 20 largest replicas. If one partition outgrows the others of its topic, check "
            "the keys of the producers.",
            [Query(f"topk(20, tidelog_partition_log_size_bytes{{{BROKERS}}})", "bytes")],
            ["service", "topic", "partition"],
            empty="none",
            units=[BYTES],
        ),
    ]


def _process() -> list[Panel]:
    return [
        graph(
            "CPU usage",
            "Share of one core, which is the most that a broker can use. If it is near 1, start "
            "more brokers or let clients batch more.",
            Query(per_second("process_cpu_seconds_total", BROKERS, "service"), "{{service}}"),
            SHARE,
            Steps(watch=0.8, bad=0.95),
        ),
        graph(
            "Memory usage",
            "Resident memory. If it only grows, check the queues and the number of partitions.",
            _by_service("process_resident_memory_bytes"),
            BYTES,
        ),
        graph(
            "Open file descriptors",
            "Share of the process limit; segments and connections need file descriptors. If it is "
            "near 1, raise the limit.",
            Query(f"process_open_fds{{{BROKERS}}} / process_max_fds{{{BROKERS}}}", "{{service}}"),
            SHARE,
            Steps(watch=0.6, bad=0.8),
        ),
        graph(
            "Metrics collection time",
            "Time on the event loop for one scrape. Above 0.2 s scrape less often.",
            _by_service("tidelog_scrape_collection_seconds"),
            SECONDS,
            Steps(watch=0.2),
        ),
    ]
