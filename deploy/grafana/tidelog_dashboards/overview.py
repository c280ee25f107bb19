"""The overview dashboard: the health of the cluster, and what changed. Start here on call."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from tidelog_dashboards.controller import elections_by_cause
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
    event_bars,
    exactly_one,
    graph,
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
        "Health of the cluster, present problems, throughput and recent changes. If all panels of "
        "the section Health are green, no action is needed.",
        [],
        [
            ("Health", _health()),
            ("Problems", _problems()),
            ("Throughput and latency", _throughput()),
            ("Recent changes", _changes()),
        ],
    )


def _reported_by_active(metric: str) -> str:
    # Only the active controller reports them. During a change of controllers the largest counts.
    return f"max({metric}{{{CLUSTER}}})"


def _health() -> list[Panel]:
    return [
        exactly_one(
            "Active controllers",
            "Controllers that report themselves as active; exactly one is correct. At 0 no leader "
            "is elected: check that etcd answers and that controllers run.",
            f"sum(tidelog_controller_active{{{CLUSTER}}})",
        ),
        number(
            "Services down",
            "Services that Prometheus cannot scrape: dead, paused or cut off. Check which ones in "
            "the panel Service availability; then run `tidelog explain broker N`.",
            f"sum(1 - up{{{SERVICES}}})",
            _ANY_IS_BAD,
        ),
        *_partition_health(),
        number(
            "etcd unreachable time",
            "Time without an answer from etcd, of the service that has waited longest. Start etcd "
            "or repair the network to it: no leader is elected meanwhile.",
            f"max(tidelog_store_unreachable_seconds{{{CLUSTER}}})",
            Steps(watch=1, bad=5),
            SECONDS,
        ),
        number(
            "Brokers with overdue commands",
            "Live brokers that have not acknowledged a command in time. Check the controller "
            "dashboard for which ones; `tidelog explain broker N` says why.",
            f"sum(tidelog_state_change_overdue{{{CLUSTER}}})",
            _ANY_IS_BAD,
        ),
        number(
            "Damaged replicas",
            "Replicas that can neither lead nor follow until they are repaired. Check the "
            "broker's log for replica_damaged, and check its disk.",
            f"sum(tidelog_broker_out_of_service_replicas{{{CLUSTER}}})",
            _ANY_IS_BAD,
        ),
    ]


def _partition_health() -> list[Panel]:
    return [
        number(
            "Offline partitions",
            "Partitions without a leader: no client can write or read them. Run `tidelog "
            "explain`: it names the last in-sync replicas and when their brokers died.",
            _reported_by_active("tidelog_cluster_offline_partitions"),
            _ANY_IS_BAD,
        ),
        number(
            "Partitions below min ISR",
            "Partitions that reject writes with acks=all because their ISR is below min ISR. "
            "Bring replicas back at once; `tidelog explain` names them.",
            _reported_by_active("tidelog_cluster_under_min_isr_partitions"),
            _ANY_IS_BAD,
        ),
        number(
            "Partitions at min ISR",
            "Partitions that lack a replica and reject writes with acks=all after the next loss. "
            "Bring the missing replicas back before you stop any other broker.",
            _reported_by_active("tidelog_cluster_at_min_isr_partitions"),
            _ANY_IS_TO_WATCH,
        ),
        number(
            "Under-replicated partitions",
            "Partitions whose ISR is not full. Run `tidelog explain`: it names the missing "
            "replicas and the reason.",
            _reported_by_active("tidelog_cluster_under_replicated_partitions"),
            _ANY_IS_TO_WATCH,
        ),
        number(
            "Stalled high watermarks",
            "Partitions in which records wait and none is committed. Run `tidelog explain`: it "
            "names the follower that holds the high watermark back.",
            f"sum(tidelog_broker_hw_stalled_partitions{{{CLUSTER}}})",
            _ANY_IS_BAD,
        ),
        number(
            "Maximum replication lag",
            "Age of the oldest record that any follower lacks. Check the replication lag "
            "dashboard for the follower.",
            f"max(tidelog_follower_max_lag_seconds{{{CLUSTER}}})",
            Steps(watch=5, bad=10),
            SECONDS,
        ),
        number(
            "Partitions after an unclean election",
            "Partitions whose current leader epoch began with an unclean election. Run `tidelog "
            "explain` for the records that may be lost, and inform the owners of the topic.",
            _reported_by_active("tidelog_cluster_unclean_partitions"),
            _ANY_IS_TO_WATCH,
        ),
    ]


def _problems() -> list[Panel]:
    return [
        rows(
            "Firing alerts",
            "Alerts that fire now. Open Alerts in Prometheus and do what the runbook of the alert "
            "says.",
            [Query(f'ALERTS{{alertstate="firing", {CLUSTER}}}')],
            ["alertname", "severity", "service", "broker", "follower"],
            empty="no alert fires",
        ),
        rows(
            "Unhealthy partitions",
            "The worst partitions with their problem, as reported by the active controller. Run "
            "`tidelog explain TOPIC/PARTITION`.",
            [Query(f"tidelog_cluster_unwell_partition{{{CLUSTER}}} == 1")],
            ["topic", "partition", "problem"],
            empty="none, if a controller is active",
        ),
        timeline(
            "Service availability",
            "Red while Prometheus cannot scrape a service. Check the process, its machine and its "
            "log.",
            Query(f"up{{{SERVICES}}}", "{{service}}"),
            [("down", BAD), ("up", GOOD)],
        ),
        graph(
            "Partition leaders by broker",
            "Leaders move when a broker fails, and do not move back by themselves. If brokers "
            "stay uneven, check the number of leaders that are not preferred.",
            [
                Query(f"tidelog_broker_leaders{{{CLUSTER}}}", "{{service}}"),
                Query(
                    f"max(tidelog_cluster_not_preferred_leader_partitions{{{CLUSTER}}})",
                    "leader is not the preferred replica",
                ),
            ],
        ),
    ]


def _throughput() -> list[Panel]:
    return [
        graph(
            "Bytes per second by flow",
            "Bytes produced and fetched by clients, and copied between brokers. If replica_in "
            "stays below replica_out, check which follower does not keep up.",
            Query(per_second("tidelog_data_bytes_total", CLUSTER, "flow"), "{{flow}}"),
            BYTES_PER_SECOND,
        ),
        graph(
            "Records per second by flow",
            "Records of the same flows. Divide bytes by records to get the record size.",
            Query(per_second("tidelog_data_records_total", CLUSTER, "flow"), "{{flow}}"),
            RECORDS_PER_SECOND,
        ),
        graph(
            "Client request latency",
            "99th percentile of each request, waits included. Compare produce with acks=all and "
            "acks=leader: the difference is replication.",
            Query(
                quantile(
                    0.99,
                    "tidelog_request_duration_seconds",
                    f'{CLUSTER}, request=~"produce|fetch|list_offsets|metadata"',
                    "request, acks",
                ),
                "{{request}} {{acks}}",
            ),
            SECONDS,
        ),
        graph(
            "Rejected requests",
            "Errors returned to clients and followers, by code. Do what the comment of the code "
            "in errors.proto says; `tidelog explain` gives the reason.",
            Query(
                per_second("tidelog_requests_refused_total", CLUSTER, "request, code") + " > 0",
                "{{request}}: {{code}}",
            ),
            ERRORS_PER_SECOND,
        ),
    ]


def _changes() -> list[Panel]:
    return [
        elections_by_cause(),
        event_bars(
            "Broker departures by cause",
            "Brokers that left the cluster. Check the broker's log, unless an operator stopped it.",
            Query(times("tidelog_broker_departures_total", CLUSTER, "cause") + " > 0", "{{cause}}"),
        ),
        event_bars(
            "ISR changes",
            "Replicas removed by their leader because they lag, replicas removed by the "
            "controller because their broker left, and replicas that joined. If replicas leave "
            "and join repeatedly, check the replication lag dashboard.",
            [
                Query(
                    times("tidelog_isr_shrinks_total", CLUSTER, "cause") + " > 0",
                    "removed by leader: {{cause}}",
                ),
                Query(
                    times("tidelog_controller_isr_shrinks_total", CLUSTER, "cause") + " > 0",
                    "removed by controller: {{cause}}",
                ),
                Query(times("tidelog_isr_expands_total", CLUSTER) + " > 0", "joined"),
            ],
        ),
        graph(
            "Cluster size",
            "Brokers by state, topics and partitions. Run `tidelog explain` if there are fewer "
            "brokers than you run.",
            [
                Query(
                    f"max by (state) (tidelog_cluster_brokers{{{CLUSTER}}})", "brokers: {{state}}"
                ),
                Query(_reported_by_active("tidelog_cluster_topics"), "topics"),
                Query(_reported_by_active("tidelog_cluster_partitions"), "partitions"),
            ],
        ),
    ]
