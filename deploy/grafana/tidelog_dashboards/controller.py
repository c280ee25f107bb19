"""Who decides, how quickly do decisions arrive, and whom do they wait for?"""

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
    exactly_one,
    graph,
    happenings,
    number,
    timeline,
)
from tidelog_dashboards.promql import per_second, quantile, times

_CONTROLLERS = f'{CLUSTER}, service=~"controller-.+"'


def controller() -> dashboard.Dashboard:
    return new_dashboard(
        "tidelog-controller",
        "controller and state changes",
        "Who decides, what was decided, and how soon brokers did what they were told.",
        [],
        [
            ("Is it well?", _health()),
            ("Do brokers do what they are told?", _backlog()),
            ("What was changed?", _changes()),
            ("What is being moved?", _moves()),
            ("What does the controller wait for?", _waits()),
        ],
    )


def _health() -> list[Panel]:
    return [
        exactly_one(
            "Is exactly one controller active?",
            "At 0 nobody elects leaders: look at etcd and at the controllers' logs.",
            f"sum(tidelog_controller_active{{{CLUSTER}}})",
        ),
        number(
            "How many controllers took over in the last hour?",
            "Elections of controllers. Where it climbs often, they lose their lease: look at "
            "etcd's latency.",
            f"sum(increase(tidelog_controller_elections_total{{{CLUSTER}}}[1h]))",
            Steps(watch=3),
        ),
        number(
            "How many brokers do not take commands?",
            "Look below which; then run `tidelog explain broker N`.",
            f"sum(tidelog_state_change_overdue{{{CLUSTER}}})",
            Steps(bad=1),
        ),
        number(
            "For how long has the oldest command waited?",
            "Beyond command_timeout_ms the broker is overdue. Look whether it is paused or cut "
            "off.",
            f"max(tidelog_state_change_backlog_age_seconds{{{CLUSTER}}})",
            Steps(watch=2, bad=10),
            SECONDS,
        ),
        number(
            "How many topics wait to be deleted?",
            "Run `tidelog explain TOPIC`: it names the brokers that the deletion waits for.",
            f"max(tidelog_cluster_topic_deletions{{{CLUSTER}}})",
            Steps(watch=1),
        ),
        number(
            "How many events got lost on their way to __state_changes?",
            "In the last hour. They are in the services' logs all the same; look whether that "
            "topic has a leader.",
            f"sum(increase(tidelog_events_dropped_total{{{CLUSTER}}}[1h]))",
            Steps(watch=1),
        ),
    ]


def _backlog() -> list[Panel]:
    return [
        graph(
            "How many partitions has each broker yet to be told of?",
            "Whose newest state it has not acknowledged. Where it stands for seconds look at "
            "that broker: `tidelog explain broker N`.",
            [
                Query(
                    f"max by (broker) (tidelog_state_change_backlog_partitions{{{CLUSTER}}})",
                    "broker {{broker}}",
                )
            ],
        ),
        graph(
            "For how long has each broker not acknowledged?",
            "Age of its oldest command, which is sent again by itself. Beyond command_timeout_ms "
            "run `tidelog explain broker N`.",
            [
                Query(
                    f"max by (broker) (tidelog_state_change_backlog_age_seconds{{{CLUSTER}}})",
                    "broker {{broker}}",
                )
            ],
            SECONDS,
            Steps(watch=2, bad=10),
        ),
        graph(
            "How long does a change take, stage by stage?",
            "90th percentile since it was requested, over all services. Where received late "
            "look at the network and the broker's event loop, where completed late at its disk, "
            "where acknowledged late at the controller.",
            [
                Query(
                    quantile(0.9, "tidelog_state_change_duration_seconds", CLUSTER, "kind, stage"),
                    "{{kind}} {{stage}}",
                )
            ],
            SECONDS,
        ),
        happenings(
            "Which commands were not acknowledged in time?",
            "Times that a live broker did not answer within command_timeout_ms. Look at that "
            "broker's event loop and log.",
            [
                Query(
                    times("tidelog_commands_overdue_total", CLUSTER, "service"),
                    "told by {{service}}",
                )
            ],
        ),
    ]


def _changes() -> list[Panel]:
    return [
        happenings(
            "Which leaders were elected, and why?",
            "Look at the broker's log and machine where the cause is broker_crashed; where it "
            "says nobody, run `tidelog explain`.",
            [
                Query(
                    times("tidelog_elections_total", CLUSTER, "outcome, cause") + " > 0",
                    "{{outcome}}: {{cause}}",
                )
            ],
        ),
        happenings(
            "Which elections were unclean?",
            "Records that were committed may be gone. Find out with `tidelog trace "
            "TOPIC/PARTITION` what, and tell the topic's owners.",
            [
                Query(
                    times("tidelog_unclean_elections_total", CLUSTER, "service"),
                    "decided by {{service}}",
                )
            ],
        ),
        happenings(
            "What changes, and how far does it come?",
            "Stages told by all services, by kind. Every requested change ends as completed, "
            "failed or ignored; run `tidelog trace TOPIC/PARTITION` to see one from end to end.",
            [
                Query(
                    times("tidelog_state_changes_total", CLUSTER, "kind, stage") + " > 0",
                    "{{kind}} {{stage}}",
                )
            ],
        ),
        happenings(
            "What failed, or was ignored?",
            "Ignored ones were late or repeated, which is harmless. Look up failed ones with "
            "`tidelog trace TOPIC/PARTITION`: they say why.",
            [
                Query(
                    times(
                        "tidelog_state_changes_total",
                        f'{CLUSTER}, stage=~"failed|ignored"',
                        "service, stage",
                    ),
                    "{{service}} {{stage}}",
                )
            ],
        ),
        happenings(
            "Which brokers left, and why?",
            "Look at that broker's log, unless somebody stopped it.",
            [
                Query(
                    times("tidelog_broker_departures_total", CLUSTER, "cause") + " > 0", "{{cause}}"
                )
            ],
        ),
        timeline(
            "Who was active, when?",
            "Each controller's own word. Look into the log of one that stopped being active "
            "without being stopped.",
            Query(f"tidelog_controller_active{{{CLUSTER}}}", "{{service}}"),
            [("stands by", PLAIN), ("active", GOOD), ("?", BAD)],
        ),
    ]


def _moves() -> list[Panel]:
    return [
        graph(
            "How many operations run, and how many partitions are under way?",
            "To other replicas, or back. Where an operation does not end run `tidelog explain`: it "
            "says what it waits for.",
            [
                Query(f"max(tidelog_cluster_operations{{{CLUSTER}}})", "operations"),
                Query(
                    f"max(tidelog_cluster_moving_partitions{{{CLUSTER}}})", "partitions under way"
                ),
            ],
        ),
        graph(
            "How far are moves?",
            "Of operations that have not ended. Where some wait and none is active run "
            "`tidelog explain`: it says what holds them back.",
            [Query(f"max by (state) (tidelog_cluster_moves{{{CLUSTER}}})", "{{state}}")],
        ),
        graph(
            "How much is left to copy?",
            "Bytes that new replicas lack of partitions under way, by the broker that gets them. "
            "Where it stands look at that broker: `tidelog explain broker N`.",
            [
                Query(
                    f"sum by (follower) (tidelog_follower_adding_lag_bytes{{{CLUSTER}}})",
                    "to broker {{follower}}",
                )
            ],
            BYTES,
        ),
        graph(
            "How fast is it copied?",
            "Sent to new replicas, by the broker that gets them. Compare with the bound on moves, "
            "which can be changed while they run.",
            [
                Query(
                    per_second("tidelog_move_sent_bytes_total", CLUSTER, "follower"),
                    "to broker {{follower}}",
                )
            ],
            BYTES_PER_SECOND,
        ),
    ]


def _waits() -> list[Panel]:
    return [
        graph(
            "How long does etcd take?",
            "99th percentile of the controllers' requests. Above 0.1 s look at the disk of "
            "etcd's leader (its fsync duration).",
            [
                Query(
                    quantile(
                        0.99,
                        "tidelog_store_request_duration_seconds",
                        _CONTROLLERS,
                        "service, operation",
                    ),
                    "{{service}} {{operation}}",
                )
            ],
            SECONDS,
            Steps(watch=0.1, bad=0.5),
        ),
        graph(
            "How often does etcd not answer?",
            "By service. Look whether etcd has a quorum: records are written and read all the "
            "same, but no leader is elected.",
            [Query(per_second("tidelog_store_errors_total", CLUSTER, "service"), "{{service}}")],
            "suffix: errors/s",
        ),
        graph(
            "How long does a decision take?",
            "99th percentile of one event, and how late the event loop is. Above 0.1 s "
            "failovers wait for it: look how many partitions one event concerns.",
            [
                Query(
                    quantile(0.99, "tidelog_controller_event_duration_seconds", CLUSTER, "service"),
                    "{{service}}: an event",
                ),
                Query(
                    quantile(0.99, "tidelog_event_loop_lag_seconds", _CONTROLLERS, "service"),
                    "{{service}}: lateness",
                ),
            ],
            SECONDS,
            Steps(watch=0.1, bad=0.5),
        ),
        graph(
            "What waits in the controllers?",
            "Queues by name. Where one only grows look at etcd, and at the event loop.",
            [Query(f"tidelog_queue_depth{{{_CONTROLLERS}}}", "{{service}} {{queue}}")],
        ),
        graph(
            "How long do administrators wait?",
            "90th percentile of admin requests. Compare with how long etcd takes: they wait for "
            "it.",
            [
                Query(
                    quantile(0.9, "tidelog_request_duration_seconds", _CONTROLLERS, "request"),
                    "{{request}}",
                )
            ],
            SECONDS,
        ),
        graph(
            "How much CPU do controllers use?",
            "Shares of a core. A controller that is busy without changes wants a look at its log.",
            [
                Query(
                    per_second("process_cpu_seconds_total", _CONTROLLERS, "service"), "{{service}}"
                )
            ],
            "percentunit",
        ),
        graph(
            "Do all gateways announce themselves?",
            "REST API and console. Where one is silent run `tidelog explain`: it says which, and "
            "whether its process stands still, has ended or is cut off.",
            [Query(f"max by (state) (tidelog_gateways{{{CLUSTER}}})", "{{state}}")],
        ),
    ]
