"""Is the cluster well, and what happened? The first look at night."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from tidelog_dashboards.frame import CLUSTER, SERVICES, new_dashboard
from tidelog_dashboards.panels import (
    BAD,
    BYTES_PER_SECOND,
    ERRORS_PER_SECOND,
    GOOD,
    RECORDS_PER_SECOND,
    SECONDS,
    Panel,
    Query,
    Steps,
    exactly_one,
    graph,
    happenings,
    number,
    rows,
    timeline,
)
from tidelog_dashboards.promql import per_second, quantile, times

_ANY_IS_BAD = Steps(bad=1)
_ANY_IS_TO_WATCH = Steps(watch=1)


def overview() -> dashboard.Dashboard:
    return new_dashboard(
        "tidelog-overview",
        "cluster overview",
        "Whether the cluster is well, what is wrong with it, and what has happened. All green: "
        "go back to bed.",
        [],
        [
            ("Is it well?", _health()),
            ("What is wrong, and where?", _wrong()),
            ("What goes through?", _data()),
            ("What has happened?", _happened()),
        ],
    )


def _of_cluster(metric: str) -> str:
    # The active controller alone tells them; the largest, while one takes over from another.
    return f"max({metric}{{{CLUSTER}}})"


def _health() -> list[Panel]:
    return [
        exactly_one(
            "Is exactly one controller active?",
            "Controllers that call themselves active. At 0 nobody elects leaders: look whether "
            "etcd answers and controllers run.",
            f"sum(tidelog_controller_active{{{CLUSTER}}})",
        ),
        number(
            "How many services do not answer?",
            "Services that Prometheus cannot scrape: dead, paused or cut off. Look which, below; "
            "then run `tidelog explain broker N`.",
            f"sum(1 - up{{{SERVICES}}})",
            _ANY_IS_BAD,
        ),
        number(
            "How many partitions have no leader?",
            "Nobody can write or read them. Run `tidelog explain`: it names who was in sync last "
            "and when it died.",
            _of_cluster("tidelog_cluster_offline_partitions"),
            _ANY_IS_BAD,
        ),
        number(
            "How many refuse acks=all?",
            "Partitions whose ISR is below min ISR. Bring replicas back at once; `tidelog "
            "explain` names them.",
            _of_cluster("tidelog_cluster_under_min_isr_partitions"),
            _ANY_IS_BAD,
        ),
        number(
            "How many stop writes with the next loss?",
            "Partitions at min ISR that lack a replica. Bring the missing replicas back before "
            "any other broker is stopped.",
            _of_cluster("tidelog_cluster_at_min_isr_partitions"),
            _ANY_IS_TO_WATCH,
        ),
        number(
            "How many lack a replica?",
            "Partitions whose ISR is not full. Run `tidelog explain`: it names the replicas "
            "that are missing, and why.",
            _of_cluster("tidelog_cluster_under_replicated_partitions"),
            _ANY_IS_TO_WATCH,
        ),
        number(
            "Where does the high watermark stand still?",
            "Partitions in which records wait and none is committed. Run `tidelog explain`: it "
            "names the follower that holds them.",
            f"sum(tidelog_broker_hw_stalled_partitions{{{CLUSTER}}})",
            _ANY_IS_BAD,
        ),
        number(
            "How far is the worst follower behind?",
            "Age of the oldest record that any follower lacks. Look at the dashboard of "
            "replication lag for whose it is.",
            f"max(tidelog_follower_max_lag_seconds{{{CLUSTER}}})",
            Steps(watch=5, bad=10),
            SECONDS,
        ),
        number(
            "Where may an unclean election have lost records?",
            "Partitions whose present epoch began with an unclean election. Run `tidelog "
            "explain` for what may be gone, and tell the topic's owners.",
            _of_cluster("tidelog_cluster_unclean_partitions"),
            _ANY_IS_TO_WATCH,
        ),
        number(
            "For how long has etcd not answered?",
            "By the service that waits longest. Start etcd, or mend the network to it: "
            "meanwhile no leader is elected.",
            f"max(tidelog_store_unreachable_seconds{{{CLUSTER}}})",
            Steps(watch=1, bad=5),
            SECONDS,
        ),
        number(
            "How many brokers do not take commands?",
            "Live brokers that have not acknowledged a command in time. Look at the dashboard "
            "of the controller for which; `tidelog explain broker N` tells why.",
            f"sum(tidelog_state_change_overdue{{{CLUSTER}}})",
            _ANY_IS_BAD,
        ),
        number(
            "How many replicas are damaged?",
            "Replicas that neither lead nor follow before they are repaired. Look for "
            "replica_damaged in their broker's log, and at its disk.",
            f"sum(tidelog_broker_out_of_service_replicas{{{CLUSTER}}})",
            _ANY_IS_BAD,
        ),
    ]


def _wrong() -> list[Panel]:
    return [
        rows(
            "Which alerts fire?",
            "Every alert says what to do in its runbook: look it up in Prometheus, under Alerts.",
            [Query(f'ALERTS{{alertstate="firing", {CLUSTER}}}')],
            ["alertname", "severity", "service", "broker", "follower"],
            empty="none fires",
        ),
        rows(
            "Which partitions are unwell, and how?",
            "The worst ones, as the active controller sees them. Run `tidelog explain "
            "TOPIC/PARTITION`.",
            [Query(f"tidelog_cluster_unwell_partition{{{CLUSTER}}} == 1")],
            ["topic", "partition", "problem"],
            empty="none, if a controller is active",
        ),
        timeline(
            "Which services answer?",
            "Red where Prometheus gets no answer. Look at that process, its machine and its log.",
            Query(f"up{{{SERVICES}}}", "{{service}}"),
            [("gone", BAD), ("answers", GOOD)],
        ),
        graph(
            "Who leads how many partitions?",
            "Leaders move when a broker goes, and stay where they went. Where brokers stay "
            "uneven look at the leaders that are not the preferred ones.",
            [
                Query(f"tidelog_broker_leaders{{{CLUSTER}}}", "{{service}}"),
                Query(
                    f"max(tidelog_cluster_not_preferred_leader_partitions{{{CLUSTER}}})",
                    "not the preferred leader",
                ),
            ],
        ),
    ]


def _data() -> list[Panel]:
    return [
        graph(
            "How many bytes flow?",
            "Produced and fetched by clients, and copied between brokers. Where replica_in "
            "stays below replica_out for long, look which follower does not keep up.",
            [Query(per_second("tidelog_data_bytes_total", CLUSTER, "flow"), "{{flow}}")],
            BYTES_PER_SECOND,
        ),
        graph(
            "How many records flow?",
            "By the same flows. Divide bytes by records for the size of a record.",
            [Query(per_second("tidelog_data_records_total", CLUSTER, "flow"), "{{flow}}")],
            RECORDS_PER_SECOND,
        ),
        graph(
            "How long do clients wait?",
            "99th percentile of each request, waits included. Compare produce with acks=all and "
            "acks=leader: the difference is replication.",
            [
                Query(
                    quantile(
                        0.99,
                        "tidelog_request_duration_seconds",
                        f'{CLUSTER}, request=~"produce|fetch|list_offsets|metadata"',
                        "request, acks",
                    ),
                    "{{request}} {{acks}}",
                )
            ],
            SECONDS,
        ),
        graph(
            "What is refused?",
            "Errors answered to clients and followers, by code. Do what the comment of the code "
            "in errors.proto says; `tidelog explain` tells why.",
            [
                Query(
                    per_second("tidelog_requests_refused_total", CLUSTER, "request, code") + " > 0",
                    "{{request}}: {{code}}",
                )
            ],
            ERRORS_PER_SECOND,
        ),
    ]


def _happened() -> list[Panel]:
    return [
        happenings(
            "Which leaders were elected, and why?",
            "Elections by outcome and cause. Look at the broker's log and machine where the "
            "cause is broker_crashed; where it says nobody, run `tidelog explain`.",
            [
                Query(
                    times("tidelog_elections_total", CLUSTER, "outcome, cause") + " > 0",
                    "{{outcome}}: {{cause}}",
                )
            ],
        ),
        happenings(
            "Which brokers left, and why?",
            "Departures by cause. Look at that broker's log, unless somebody stopped it.",
            [
                Query(
                    times("tidelog_broker_departures_total", CLUSTER, "cause") + " > 0", "{{cause}}"
                )
            ],
        ),
        happenings(
            "Which replicas left and joined ISRs?",
            "Those who left because they lag, those whom the controller took out because their "
            "broker had gone, and those who joined. Replicas that come and go want a look at "
            "the dashboard of replication lag.",
            [
                Query(
                    times("tidelog_isr_shrinks_total", CLUSTER, "cause") + " > 0", "left: {{cause}}"
                ),
                Query(
                    times("tidelog_controller_isr_shrinks_total", CLUSTER, "cause") + " > 0",
                    "taken out: {{cause}}",
                ),
                Query(times("tidelog_isr_expands_total", CLUSTER) + " > 0", "joined"),
            ],
        ),
        graph(
            "How large is the cluster?",
            "Brokers by state, topics and partitions. Run `tidelog explain` where there are "
            "fewer brokers than you run.",
            [
                Query(
                    f"max by (state) (tidelog_cluster_brokers{{{CLUSTER}}})", "brokers: {{state}}"
                ),
                Query(_of_cluster("tidelog_cluster_topics"), "topics"),
                Query(_of_cluster("tidelog_cluster_partitions"), "partitions"),
            ],
        ),
    ]
