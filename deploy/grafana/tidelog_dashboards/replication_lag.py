"""Which follower is behind, how far, since when, and does it catch up?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from tidelog_dashboards.frame import BROKER, CLUSTER, TOPIC, new_dashboard
from tidelog_dashboards.panels import (
    BYTES,
    BYTES_PER_SECOND,
    NUMBER,
    RECORDS_PER_SECOND,
    SECONDS,
    WIDE,
    Panel,
    Query,
    Steps,
    graph,
    happenings,
    number,
    rows,
)
from tidelog_dashboards.promql import per_second, times

# The lag at which a replica leaves the ISR, unless it is configured otherwise.
LAG_TIME_MAX = Steps(watch=5, bad=10)

_FOLLOWERS = f'{CLUSTER}, follower=~"$broker"'
_REPLICAS = f'{_FOLLOWERS}, topic=~"$topic"'


def replication_lag() -> dashboard.Dashboard:
    return new_dashboard(
        "tidelog-replication-lag",
        "replication lag",
        "Which followers are behind their leaders, how far and since when, and which queries of "
        "Spark are behind the logs. `broker` are followers here.",
        [BROKER, TOPIC],
        [
            ("Does anybody lag?", _health()),
            ("Which broker lags?", _followers()),
            ("Which partitions lag?", _partitions()),
            ("What comes of it?", _effects()),
            ("Which queries of Spark lag?", _spark()),
        ],
    )


def _health() -> list[Panel]:
    return [
        number(
            "How far is the worst follower behind?",
            "Age of the oldest record that it lacks. Look below for whose it is; beyond "
            "replica_lag_time_max_ms it leaves the ISR.",
            f"max(tidelog_follower_max_lag_seconds{{{_FOLLOWERS}}})",
            LAG_TIME_MAX,
            SECONDS,
        ),
        number(
            "How many records are on their way?",
            "Records that followers lack, over all partitions. Where it only grows look which "
            "follower does not keep up.",
            f"sum(tidelog_follower_lag_records{{{_FOLLOWERS}}})",
            Steps(),
        ),
        number(
            "How many bytes are on their way?",
            "Divide by the rate of replica_in below for the time that they still take.",
            f"sum(tidelog_follower_lag_bytes{{{_FOLLOWERS}}})",
            Steps(),
            BYTES,
        ),
        number(
            "How many replicas lag by more than a second?",
            "One: look at that replica. All of a broker: look at the broker.",
            f"sum(tidelog_follower_lagging_partitions{{{_FOLLOWERS}}})",
            Steps(watch=1),
        ),
        number(
            "How many replicas are out of their ISR?",
            "Run `tidelog explain broker N`: it says why, and what to do.",
            f"sum(tidelog_follower_out_of_isr_partitions{{{_FOLLOWERS}}})",
            Steps(watch=1),
        ),
        number(
            "How many unwell partitions have no series?",
            "Only the worst of each broker have series of their own. Run `tidelog explain` for "
            "the rest.",
            f"sum(tidelog_partitions_without_series{{{CLUSTER}}})",
            Steps(watch=1),
        ),
    ]


def _followers() -> list[Panel]:
    return [
        graph(
            "How many seconds is each broker behind?",
            "Age of the oldest record that it lacks, in any partition. Look at the broker's "
            "process (paused, dead?), disk and network: `tidelog explain broker N`.",
            [
                Query(
                    f"max by (follower) (tidelog_follower_max_lag_seconds{{{_FOLLOWERS}}})",
                    "broker {{follower}}",
                )
            ],
            SECONDS,
            LAG_TIME_MAX,
        ),
        graph(
            "Since when has each broker not fetched?",
            "Age of its last fetch, by the leader that it has not asked for longest. Above a "
            "few seconds it is dead, paused or cut off from there: run `tidelog explain broker N`.",
            [
                Query(
                    f"max by (follower) (tidelog_follower_fetch_age_seconds{{{_FOLLOWERS}}})",
                    "broker {{follower}}",
                )
            ],
            SECONDS,
            LAG_TIME_MAX,
        ),
        graph(
            "How many records does each broker lack?",
            "Over all its partitions. Where it falls, the broker catches up; where it grows, run "
            "`tidelog explain broker N`.",
            [
                Query(
                    f"sum by (follower) (tidelog_follower_lag_records{{{_FOLLOWERS}}})",
                    "broker {{follower}}",
                )
            ],
        ),
        graph(
            "How many bytes does each broker lack?",
            "Over all its partitions. Compare with what it copies a second, at the right.",
            [
                Query(
                    f"sum by (follower) (tidelog_follower_lag_bytes{{{_FOLLOWERS}}})",
                    "broker {{follower}}",
                )
            ],
            BYTES,
        ),
        graph(
            "How many bytes does each broker copy?",
            "What followers got from their leaders. A lagging broker that copies little waits "
            "for its disk, its CPU or the network: look at its own dashboard.",
            [
                Query(
                    per_second(
                        "tidelog_data_bytes_total",
                        f'{CLUSTER}, service=~"broker-$broker", flow="replica_in"',
                        "service",
                    ),
                    "{{service}}",
                )
            ],
            BYTES_PER_SECOND,
        ),
        graph(
            "In how many partitions does each broker lag?",
            "By more than a second, or so far that it is out of the ISR. One: look at that "
            "replica. All: look at the broker.",
            [
                Query(
                    f"sum by (follower) (tidelog_follower_lagging_partitions{{{_FOLLOWERS}}})",
                    "broker {{follower}} lags",
                ),
                Query(
                    f"sum by (follower) (tidelog_follower_out_of_isr_partitions{{{_FOLLOWERS}}})",
                    "broker {{follower}} out of the ISR",
                ),
            ],
        ),
    ]


def _partitions() -> list[Panel]:
    worst = "max by (topic, partition, follower) (tidelog_replication_lag"
    lag_seconds = f"{worst}_seconds{{{_REPLICAS}}})"
    lag_records = f"{worst}_records{{{_REPLICAS}}})"
    lag_bytes = f"{worst}_bytes{{{_REPLICAS}}})"
    return [
        rows(
            "Which replicas are furthest behind?",
            "Now, by age of the oldest record that they lack. Run `tidelog explain "
            "TOPIC/PARTITION` for the reason.",
            [
                Query(lag_seconds, "age"),
                Query(lag_records, "records"),
                Query(lag_bytes, "bytes"),
            ],
            ["topic", "partition", "follower"],
            empty="none lags",
            units=[SECONDS, NUMBER, BYTES],
            width=WIDE,
        ),
        graph(
            "How many seconds are the worst replicas behind?",
            "Those that lag most. Look whether they share a topic, a leader or a follower.",
            [Query(f"topk(10, {lag_seconds})", "{{topic}}/{{partition}} on {{follower}}")],
            SECONDS,
            LAG_TIME_MAX,
        ),
        graph(
            "How many records are the worst replicas behind?",
            "Those that lack most. Look whether producers write one partition more than others.",
            [Query(f"topk(10, {lag_records})", "{{topic}}/{{partition}} on {{follower}}")],
        ),
    ]


def _effects() -> list[Panel]:
    return [
        graph(
            "How many records wait to be committed?",
            "Between high watermark and log end, by leader. Where it only grows, look which "
            "follower in the ISR lags.",
            [
                Query(
                    f"sum by (service) (tidelog_broker_uncommitted_records{{{CLUSTER}}})",
                    "{{service}}",
                )
            ],
        ),
        graph(
            "Where does nothing get committed, and who waits for it?",
            "Partitions whose high watermark stands still, and consumers that therefore get "
            "nothing. Run `tidelog explain`.",
            [
                Query(
                    f"sum by (service) (tidelog_broker_hw_stalled_partitions{{{CLUSTER}}})",
                    "{{service}}: stands still",
                ),
                Query(
                    f"sum by (service) (tidelog_waiting_consumers_partitions{{{CLUSTER}}})",
                    "{{service}}: consumers wait",
                ),
            ],
        ),
        happenings(
            "Whom did leaders take out of ISRs, and why?",
            "Now and then is a restart. Where a rate stays, look at that broker's disk, network "
            "and event loop; `tidelog trace TOPIC/PARTITION` shows who comes and goes.",
            [
                Query(
                    times("tidelog_isr_shrinks_total", CLUSTER, "service, cause") + " > 0",
                    "{{service}}: {{cause}}",
                )
            ],
        ),
        happenings(
            "Whom did leaders take back?",
            "As many as left, some time later: all is well again. Compare with the left.",
            [Query(times("tidelog_isr_expands_total", CLUSTER, "service") + " > 0", "{{service}}")],
        ),
    ]


def _spark() -> list[Panel]:
    of_topics = f'{CLUSTER}, topic=~"$topic"'
    lag = f"tidelog_spark_lag_records{{{of_topics}}}"
    age = f"max by (query) (tidelog_spark_progress_age_seconds{{{CLUSTER}}})"
    return [
        rows(
            "Which queries are furthest behind?",
            "Now, by records that they have not read. Where the age grows the query hangs, and its "
            "lag is older than that: look at its jobs in Spark's own interface.",
            [
                Query(f"sum by (query) ({lag})", "records"),
                Query(age, "age of its last progress"),
            ],
            ["query"],
            empty="no driver of Spark tells: see `watch` in the README",
            units=[NUMBER, SECONDS],
        ),
        graph(
            "How many records has each query still to read?",
            "Where it only grows, look whether its rows a second, at the right, can be raised: "
            "more cores, or a higher maxOffsetsPerTrigger.",
            [Query(f"sum by (query) ({lag})", "{{query}}")],
        ),
        graph(
            "How many records does each query read?",
            "Compare with what is written to its topics; it falls behind where that is more.",
            [Query(per_second("tidelog_spark_rows_total", CLUSTER, "query"), "{{query}}")],
            RECORDS_PER_SECOND,
        ),
        graph(
            "Since when has each query not progressed?",
            "Longer than its micro-batches usually take: look at its jobs in Spark's own "
            "interface, and run `tidelog explain` for partitions without a leader.",
            [Query(age, "{{query}}")],
            SECONDS,
        ),
        graph(
            "In which partitions is a query furthest behind?",
            "All alike: the query is slow. One: look whether its keys are written more than "
            "others.",
            [
                Query(
                    f"topk(10, max by (query, topic, partition) ({lag}))",
                    "{{query}}: {{topic}}/{{partition}}",
                )
            ],
        ),
        happenings(
            "Which queries have failed?",
            "Look into the driver's log for the error, which says what to do.",
            [Query(times("tidelog_spark_failures_total", CLUSTER, "query") + " > 0", "{{query}}")],
        ),
    ]
