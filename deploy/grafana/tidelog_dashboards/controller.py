"""The controller dashboard: decisions, commands to brokers, partition moves, and waits."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from tidelog_dashboards.frame import CLUSTER, new_dashboard
from tidelog_dashboards.panels import (
    BAD,
    BYTES,
    BYTES_PER_SECOND,
    GOOD,
    PLAIN,
    SECONDS,
    Panel,
    Query,
    Steps,
    event_bars,
    exactly_one,
    graph,
    number,
    timeline,
)
from tidelog_dashboards.promql import per_second, quantile, times

_CONTROLLERS = f'{CLUSTER}, service=~"controller-.+"'


def controller() -> dashboard.Dashboard:
    return new_dashboard(
        "tidelog-controller",
        "controller and state changes",
        "Decisions of the active controller, and how fast brokers apply its commands.",
        [],
        [
            ("Health", _health()),
            ("Commands to brokers", _backlog()),
            ("Changes", _changes()),
            ("Partition moves", _moves()),
            ("Waits", _waits()),
        ],
    )


def _health() -> list[Panel]:
    return [
        exactly_one(
            "Active controllers",
            "Controllers that report themselves as active; exactly one is correct. At 0 no leader "
            "is elected: check etcd and the logs of the controllers.",
            f"sum(tidelog_controller_active{{{CLUSTER}}})",
        ),
        number(
            "Controller elections in the last hour",
            "Times that a controller became the active one. If the number is high, controllers "
            "lose their lease: check the latency of etcd.",
            f"sum(increase(tidelog_controller_elections_total{{{CLUSTER}}}[1h]))",
            Steps(watch=3),
        ),
        number(
            "Brokers with overdue commands",
            "Live brokers that have not acknowledged a command in time. Check the backlog panels "
            "for which ones; then run `tidelog explain broker N`.",
            f"sum(tidelog_state_change_overdue{{{CLUSTER}}})",
            Steps(bad=1),
        ),
        number(
            "Oldest unacknowledged command",
            "Age of the oldest command. Beyond command_timeout_ms the broker is overdue: check "
            "whether it is paused or cut off.",
            f"max(tidelog_state_change_backlog_age_seconds{{{CLUSTER}}})",
            Steps(watch=2, bad=10),
            SECONDS,
        ),
        number(
            "Pending topic deletions",
            "Topics that are not completely deleted. Run `tidelog explain TOPIC`: it names the "
            "brokers that the deletion waits for.",
            f"max(tidelog_cluster_topic_deletions{{{CLUSTER}}})",
            Steps(watch=1),
        ),
        number(
            "Dropped events in the last hour",
            "Events that were not written to __state_changes. The logs of the services still have "
            "them. Check whether that topic has a leader.",
            f"sum(increase(tidelog_events_dropped_total{{{CLUSTER}}}[1h]))",
            Steps(watch=1),
        ),
    ]


def _backlog() -> list[Panel]:
    return [
        graph(
            "Command backlog by broker",
            "Partitions whose newest state the broker has not acknowledged. If it does not fall "
            "for seconds, check that broker: `tidelog explain broker N`.",
            Query(
                f"max by (broker) (tidelog_state_change_backlog_partitions{{{CLUSTER}}})",
                "broker {{broker}}",
            ),
        ),
        graph(
            "Oldest unacknowledged command by broker",
            "Age of the broker's oldest command. The controller repeats it automatically. Beyond "
            "command_timeout_ms run `tidelog explain broker N`.",
            Query(
                f"max by (broker) (tidelog_state_change_backlog_age_seconds{{{CLUSTER}}})",
                "broker {{broker}}",
            ),
            SECONDS,
            Steps(watch=2, bad=10),
        ),
        graph(
            "State change latency by stage",
            "90th percentile since the request, over all services. If received is late, check the "
            "network and the broker's event loop. If completed is late, check its disk. If "
            "acknowledged is late, check the controller.",
            Query(
                quantile(0.9, "tidelog_state_change_duration_seconds", CLUSTER, "kind, stage"),
                "{{kind}} {{stage}}",
            ),
            SECONDS,
        ),
        event_bars(
            "Overdue commands by controller",
            "Times that a live broker did not acknowledge a command within command_timeout_ms. "
            "Check that broker's event loop and log.",
            Query(
                times("tidelog_commands_overdue_total", CLUSTER, "service"),
                "sent by {{service}}",
            ),
        ),
    ]


def elections_by_cause() -> Panel:
    return event_bars(
        "Leader elections by cause",
        "Elections by outcome and cause. For broker_crashed check the broker's log and "
        "machine. For the outcome `nobody` (no leader elected) run `tidelog explain`.",
        Query(
            times("tidelog_elections_total", CLUSTER, "outcome, cause") + " > 0",
            "{{outcome}}: {{cause}}",
        ),
    )


def _changes() -> list[Panel]:
    return [
        elections_by_cause(),
        event_bars(
            "Unclean leader elections",
            "Elections after which committed records may be lost. Run `tidelog trace "
            "TOPIC/PARTITION` for what is lost, and inform the owners of the topic.",
            Query(
                times("tidelog_unclean_elections_total", CLUSTER, "service"),
                "decided by {{service}}",
            ),
        ),
        event_bars(
            "State changes by stage",
            "Stages reported by all services, by kind. Every requested change ends as completed, "
            "failed or ignored. Run `tidelog trace TOPIC/PARTITION` to see one change from end to "
            "end.",
            Query(
                times("tidelog_state_changes_total", CLUSTER, "kind, stage") + " > 0",
                "{{kind}} {{stage}}",
            ),
        ),
        event_bars(
            "Failed and ignored state changes",
            "Ignored changes are late or repeated, which is harmless. Run `tidelog trace "
            "TOPIC/PARTITION` for the reason of failed ones.",
            Query(
                times(
                    "tidelog_state_changes_total",
                    f'{CLUSTER}, stage=~"failed|ignored"',
                    "service, stage",
                ),
                "{{service}} {{stage}}",
            ),
        ),
        event_bars(
            "Broker departures by cause",
            "Brokers that left the cluster. Check the broker's log, unless an operator stopped it.",
            Query(times("tidelog_broker_departures_total", CLUSTER, "cause") + " > 0", "{{cause}}"),
        ),
        timeline(
            "Active controller over time",
            "The state that each controller reports. Check the log of a controller that stopped "
            "being active without being stopped.",
            Query(f"tidelog_controller_active{{{CLUSTER}}}", "{{service}}"),
            [("standby", PLAIN), ("active", GOOD), ("unknown", BAD)],
        ),
    ]


def _moves() -> list[Panel]:
    return [
        graph(
            "Operations and moving partitions",
            "Operations that have not ended, and partitions that are being reassigned or rolled "
            "back. If an operation does not end, run `tidelog explain`: it says what the "
            "operation waits for.",
            [
                Query(f"max(tidelog_cluster_operations{{{CLUSTER}}})", "operations"),
                Query(f"max(tidelog_cluster_moving_partitions{{{CLUSTER}}})", "moving partitions"),
            ],
        ),
        graph(
            "Partition moves by state",
            "Moves of operations that have not ended. If some wait and none is active, run "
            "`tidelog explain`: it says what holds them back.",
            Query(f"max by (state) (tidelog_cluster_moves{{{CLUSTER}}})", "{{state}}"),
        ),
        graph(
            "Bytes left to copy by broker",
            "Bytes that new replicas lack in moving partitions, by receiving broker. If the line "
            "does not fall, check that broker: `tidelog explain broker N`.",
            Query(
                f"sum by (follower) (tidelog_follower_adding_lag_bytes{{{CLUSTER}}})",
                "to broker {{follower}}",
            ),
            BYTES,
        ),
        graph(
            "Copy throughput by broker",
            "Bytes per second sent to new replicas, by receiving broker. Compare with the "
            "throttle of moves, which can be changed while they run.",
            Query(
                per_second("tidelog_move_sent_bytes_total", CLUSTER, "follower"),
                "to broker {{follower}}",
            ),
            BYTES_PER_SECOND,
        ),
    ]


def _waits() -> list[Panel]:
    return [
        graph(
            "etcd request latency",
            "99th percentile of the controllers' requests. Above 0.1 s check the disk of etcd's "
            "leader (its fsync duration).",
            Query(
                quantile(
                    0.99,
                    "tidelog_store_request_duration_seconds",
                    _CONTROLLERS,
                    "service, operation",
                ),
                "{{service}} {{operation}}",
            ),
            SECONDS,
            Steps(watch=0.1, bad=0.5),
        ),
        graph(
            "etcd errors",
            "Requests to etcd that failed, by service. Check whether etcd has a quorum: records "
            "are still written and read, but no leader is elected.",
            Query(per_second("tidelog_store_errors_total", CLUSTER, "service"), "{{service}}"),
            "suffix: errors/s",
        ),
        graph(
            "Controller event duration and event loop lag",
            "99th percentiles. Above 0.1 s failovers wait: check how many partitions one event "
            "concerns.",
            [
                Query(
                    quantile(0.99, "tidelog_controller_event_duration_seconds", CLUSTER, "service"),
                    "{{service}}: event",
                ),
                Query(
                    quantile(0.99, "tidelog_event_loop_lag_seconds", _CONTROLLERS, "service"),
                    "{{service}}: event loop lag",
                ),
            ],
            SECONDS,
            Steps(watch=0.1, bad=0.5),
        ),
        graph(
            "Controller queue depth",
            "Waiting items, by queue. If a queue only grows, check etcd and the event loop.",
            Query(f"tidelog_queue_depth{{{_CONTROLLERS}}}", "{{service}} {{queue}}"),
        ),
        graph(
            "Admin request latency",
            "90th percentile, by request. Compare with the latency of etcd, which is a part of it.",
            Query(
                quantile(0.9, "tidelog_request_duration_seconds", _CONTROLLERS, "request"),
                "{{request}}",
            ),
            SECONDS,
        ),
        graph(
            "Controller CPU usage",
            "Share of one core. If a controller is busy without changes, check its log.",
            Query(per_second("process_cpu_seconds_total", _CONTROLLERS, "service"), "{{service}}"),
            "percentunit",
        ),
        graph(
            "Gateways by state",
            "Gateways (REST API and console) by state. If one is silent, run `tidelog explain`: it "
            "names the gateway and says whether its process is stalled, ended or cut off.",
            Query(f"max by (state) (tidelog_gateways{{{CLUSTER}}})", "{{state}}"),
        ),
    ]
