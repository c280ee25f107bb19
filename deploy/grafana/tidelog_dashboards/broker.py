"""One broker, or several side by side: is it well, what is it busy with, what does it wait for?"""

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
        "What a broker is busy with and what it waits for: requests, event loop, disk, etcd.",
        [BROKER],
        [
            ("Is it well?", _health()),
            ("What do clients and followers see?", _requests()),
            ("What does it wait for?", _waits()),
            ("What does it store?", _storage()),
            ("What does it use?", _process()),
        ],
    )


def _by_service(metric: str) -> list[Query]:
    return [Query(f"{metric}{{{BROKERS}}}", "{{service}}")]


def _health() -> list[Panel]:
    return [
        number(
            "How many do not answer?",
            "Brokers that Prometheus cannot scrape. Look at the process, its machine and its log.",
            f'sum(1 - up{{job="tidelog", {BROKERS}}})',
            Steps(bad=1),
        ),
        number(
            "How many are not registered?",
            "Brokers that run and are not in etcd: they lead nothing new. Look in their logs for "
            "what keeps them from registering.",
            f"sum(1 - tidelog_broker_registered{{{BROKERS}}})",
            Steps(bad=1),
        ),
        number(
            "How many do not know all of their replicas?",
            "A controller has not told them yet. Look whether one is active and reaches them.",
            f"sum(1 - tidelog_broker_has_full_state{{{BROKERS}}})",
            Steps(watch=1),
        ),
        number(
            "How many replicas are damaged?",
            "They neither lead nor follow before they are repaired. Look for replica_damaged in "
            "the log, and at the disk if it stays.",
            f"sum(tidelog_broker_out_of_service_replicas{{{BROKERS}}})",
            Steps(bad=1),
        ),
        number(
            "For how long has an event loop stood still?",
            "Above 3 s the broker is taken for dead. Look at its CPU, its disk and its stack "
            "(py-spy).",
            f"max(tidelog_event_loop_silent_seconds{{{BROKERS}}})",
            Steps(watch=1, bad=3),
            SECONDS,
        ),
        number(
            "How full is the fullest disk?",
            "Beyond nine tenths lower retention or add disk, before writes are refused.",
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
            "How many requests does it answer?",
            "By request. Where it grows and bytes do not, let producers linger and consumers "
            "fetch more at once.",
            [
                Query(
                    per_second(
                        "tidelog_request_duration_seconds_count", BROKERS, "service, request, acks"
                    )
                    + " > 0",
                    "{{service}} {{request}} {{acks}}",
                )
            ],
            REQUESTS_PER_SECOND,
        ),
        graph(
            "How long do requests take?",
            "99th percentile, waits for replicas and disk included; fetches that waited in vain "
            "for new records are left out. Where produce with acks=all alone is slow, look at "
            "the followers; where all are, at the event loop.",
            [
                Query(
                    quantile(
                        0.99,
                        "tidelog_request_duration_seconds",
                        f'{BROKERS}, request!~".+_idle"',
                        "service, request, acks",
                    ),
                    "{{service}} {{request}} {{acks}}",
                )
            ],
            SECONDS,
        ),
        graph(
            "How many bytes go through it?",
            "By flow. Compare with the network's and the disk's limits.",
            [
                Query(
                    per_second("tidelog_data_bytes_total", BROKERS, "service, flow"),
                    "{{service}} {{flow}}",
                )
            ],
            BYTES_PER_SECOND,
        ),
        graph(
            "How many records has a batch?",
            "Few records in each cost CPU: let producers linger.",
            [Query(f"{records} / {batches}", "{{service}} {{flow}}")],
        ),
        graph(
            "What does it refuse?",
            "By code. Do what the comment of the code in errors.proto says; `tidelog explain` "
            "tells why.",
            [
                Query(
                    per_second("tidelog_requests_refused_total", BROKERS, "service, request, code")
                    + " > 0",
                    "{{service}} {{request}}: {{code}}",
                )
            ],
            ERRORS_PER_SECOND,
        ),
        graph(
            "How well are its partitions?",
            "Of those that it leads. Run `tidelog explain`: it names the replicas that are "
            "missing, and why.",
            [
                Query(f"tidelog_broker_{metric}{{{BROKERS}}}", f"{{{{service}}}}: {words}")
                for metric, words in (
                    ("leaderless_replicas", "without a leader"),
                    ("under_min_isr_partitions", "below min ISR"),
                    ("at_min_isr_partitions", "at min ISR"),
                    ("under_replicated_partitions", "lack a replica"),
                )
            ],
        ),
    ]


def _waits() -> list[Panel]:
    return [
        graph(
            "How late is its event loop?",
            "99th percentile. Above 0.1 s every request waits: look for a starved process, a "
            "slow disk, or more load than one core carries.",
            [
                Query(
                    quantile(0.99, "tidelog_event_loop_lag_seconds", BROKERS, "service"),
                    "{{service}}",
                )
            ],
            SECONDS,
            _LOOP_LAG,
        ),
        graph(
            "What waits in it?",
            "Queues by name. Where one only grows, look at what serves it: disk, followers, etcd "
            "or the event loop.",
            [Query(f"tidelog_queue_depth{{{BROKERS}}}", "{{service}} {{queue}}")],
        ),
        graph(
            "How long does etcd take?",
            "99th percentile, by operation. Above 0.1 s look at the disk of etcd's leader.",
            [
                Query(
                    quantile(
                        0.99,
                        "tidelog_store_request_duration_seconds",
                        BROKERS,
                        "service, operation",
                    ),
                    "{{service}} {{operation}}",
                )
            ],
            SECONDS,
            Steps(watch=0.1, bad=0.5),
        ),
        graph(
            "How long do commands of the controller take?",
            "90th percentile since they were decided, by kind and stage. Where they are "
            "received late look at the network and the event loop, where completed late at the "
            "disk.",
            [
                Query(
                    quantile(
                        0.9,
                        "tidelog_state_change_duration_seconds",
                        f'{BROKERS}, stage=~"received|completed"',
                        "service, kind, stage",
                    ),
                    "{{service}} {{kind}} {{stage}}",
                )
            ],
            SECONDS,
        ),
    ]


def _storage() -> list[Panel]:
    return [
        graph(
            "How much does it store, and how much room is left?",
            "Where the two lines will meet, lower retention or add disk.",
            [
                Query(f"tidelog_log_size_bytes{{{BROKERS}}}", "{{service}}: logs"),
                Query(f"tidelog_disk_free_bytes{{{BROKERS}}}", "{{service}}: free"),
            ],
            BYTES,
        ),
        graph(
            "How much is not on the disk yet?",
            "Records, by what is known to be synced. Where it only grows the disk does not keep "
            "up, or fails: look at flush in the log.",
            _by_service("tidelog_log_unflushed_records"),
        ),
        graph(
            "How many replicas, leaders and segments has it?",
            "Where brokers differ much, place new partitions on the emptier ones; where there "
            "are very many segments, raise segment_bytes.",
            [
                Query(f"tidelog_broker_replicas{{{BROKERS}}}", "{{service}}: replicas"),
                Query(f"tidelog_broker_leaders{{{BROKERS}}}", "{{service}}: leaders"),
                Query(f"tidelog_log_segments{{{BROKERS}}}", "{{service}}: segments"),
            ],
        ),
        rows(
            "Which partitions are the largest?",
            "Where one outgrows its siblings, look at the producers' keys.",
            [Query(f"topk(20, tidelog_partition_log_size_bytes{{{BROKERS}}})", "bytes")],
            ["service", "topic", "partition"],
            empty="none",
            units=[BYTES],
        ),
    ]


def _process() -> list[Panel]:
    return [
        graph(
            "How much CPU does it use?",
            "One core is all that a broker can use: near 1 run more brokers, or let clients "
            "batch more.",
            [Query(per_second("process_cpu_seconds_total", BROKERS, "service"), "{{service}}")],
            SHARE,
            Steps(watch=0.8, bad=0.95),
        ),
        graph(
            "How much memory does it use?",
            "Where it only grows, look at the queues and at the number of partitions.",
            _by_service("process_resident_memory_bytes"),
            BYTES,
        ),
        graph(
            "How many files has it open?",
            "Near the limit raise the process's limit: segments and connections need them.",
            [Query(f"process_open_fds{{{BROKERS}}} / process_max_fds{{{BROKERS}}}", "{{service}}")],
            SHARE,
            Steps(watch=0.6, bad=0.8),
        ),
        graph(
            "How long do its scrapes take?",
            "On the event loop. Above 0.2 s scrape less often.",
            _by_service("tidelog_scrape_collection_seconds"),
            SECONDS,
            Steps(watch=0.2),
        ),
    ]
