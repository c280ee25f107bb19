"""The replication lag dashboard: followers behind their leaders, and Spark queries behind logs."""

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
    event_bars,
    graph,
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
        "Lag of followers behind their leaders, and of Spark queries behind the logs. The variable "
        "`broker` selects followers.",
        [BROKER, TOPIC],
        [
            ("Summary", _health()),
            ("Lag by broker", _followers()),
            ("Lag by partition", _partitions()),
            ("Effects of lag", _effects()),
            ("Lag of Spark queries", _spark()),
        ],
    )


def _health() -> list[Panel]:
    return [
        number(
            "Maximum replication lag",
            "Age of the oldest record that a follower lacks. Beyond replica_lag_time_max_ms the "
            "follower leaves the ISR. Check the panel Replication lag by broker for the follower.",
            f"max(tidelog_follower_max_lag_seconds{{{_FOLLOWERS}}})",
            LAG_TIME_MAX,
            SECONDS,
        ),
        number(
            "Records not yet replicated",
            "Records that followers lack, over all partitions. If the number only grows, check "
            "which follower does not keep up.",
            f"sum(tidelog_follower_lag_records{{{_FOLLOWERS}}})",
            Steps(),
        ),
        number(
            "Bytes not yet replicated",
            "Bytes that followers lack, over all partitions. Divide by the replication throughput "
            "below to estimate the remaining time.",
            f"sum(tidelog_follower_lag_bytes{{{_FOLLOWERS}}})",
            Steps(),
            BYTES,
        ),
        number(
            "Replicas lagging over 1 s",
            "Followers that are more than one second behind. If it is one replica, check that "
            "replica. If it is every replica of a broker, check the broker.",
            f"sum(tidelog_follower_lagging_partitions{{{_FOLLOWERS}}})",
            Steps(watch=1),
        ),
        number(
            "Replicas out of sync",
            "Followers that are not in the ISR. Run `tidelog explain broker N`: it gives the "
            "reason and what to do.",
            f"sum(tidelog_follower_out_of_isr_partitions{{{_FOLLOWERS}}})",
            Steps(watch=1),
        ),
        number(
            "Unhealthy partitions without a series",
            "Only the worst partitions of each broker have a series of their own. Run `tidelog "
            "explain` for the others.",
            f"sum(tidelog_partitions_without_series{{{CLUSTER}}})",
            Steps(watch=1),
        ),
    ]


def _by_follower(aggregate: str, metric: str, suffix: str = "") -> Query:
    expr = f"{aggregate} by (follower) ({metric}{{{_FOLLOWERS}}})"
    return Query(expr, f"broker {{{{follower}}}}{suffix}")


def _followers() -> list[Panel]:
    return [
        graph(
            "Replication lag by broker",
            "Age of the oldest record that the broker lacks in any partition. Run `tidelog "
            "explain broker N`. Check whether the process is paused or dead, and check disk and "
            "network.",
            _by_follower("max", "tidelog_follower_max_lag_seconds"),
            SECONDS,
            LAG_TIME_MAX,
        ),
        graph(
            "Time since the last fetch by broker",
            "Age of the broker's last fetch, at the leader where it is oldest. Above a few "
            "seconds the broker is dead, paused or cut off from that leader: run `tidelog explain "
            "broker N`.",
            _by_follower("max", "tidelog_follower_fetch_age_seconds"),
            SECONDS,
            LAG_TIME_MAX,
        ),
        graph(
            "Records not yet replicated by broker",
            "Records that the broker lacks, over all its partitions. A falling line means that "
            "the broker catches up. If it grows, run `tidelog explain broker N`.",
            _by_follower("sum", "tidelog_follower_lag_records"),
        ),
        graph(
            "Bytes not yet replicated by broker",
            "Bytes that the broker lacks, over all its partitions. Compare with the panel "
            "Replication throughput by broker.",
            _by_follower("sum", "tidelog_follower_lag_bytes"),
            BYTES,
        ),
        graph(
            "Replication throughput by broker",
            "Bytes per second that followers receive from their leaders. A lagging broker with a "
            "low throughput waits for its disk, CPU or network: check the broker dashboard.",
            Query(
                per_second(
                    "tidelog_data_bytes_total",
                    f'{CLUSTER}, service=~"broker-$broker", flow="replica_in"',
                    "service",
                ),
                "{{service}}",
            ),
            BYTES_PER_SECOND,
        ),
        graph(
            "Lagging partitions by broker",
            "Partitions in which the broker is more than one second behind, or out of the ISR. If "
            "it is one partition, check that replica. If it is all partitions, check the broker.",
            [
                _by_follower("sum", "tidelog_follower_lagging_partitions", " lagging"),
                _by_follower("sum", "tidelog_follower_out_of_isr_partitions", " out of sync"),
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
            "Replicas with the highest lag",
            "Replicas by the age of the oldest record that they lack now. Run `tidelog explain "
            "TOPIC/PARTITION` for the reason.",
            [
                Query(lag_seconds, "age"),
                Query(lag_records, "records"),
                Query(lag_bytes, "bytes"),
            ],
            ["topic", "partition", "follower"],
            empty="no replica lags",
            units=[SECONDS, NUMBER, BYTES],
            width=WIDE,
        ),
        graph(
            "Highest replication lag in seconds",
            "The ten replicas with the highest lag. Check whether they share a topic, a leader or "
            "a follower.",
            Query(f"topk(10, {lag_seconds})", "{{topic}}/{{partition}} on {{follower}}"),
            SECONDS,
            LAG_TIME_MAX,
        ),
        graph(
            "Highest replication lag in records",
            "The ten replicas that lack the most records. Check whether producers write more to "
            "one partition than to others.",
            Query(f"topk(10, {lag_records})", "{{topic}}/{{partition}} on {{follower}}"),
        ),
    ]


def _effects() -> list[Panel]:
    return [
        graph(
            "Uncommitted records by leader",
            "Records between the high watermark and the log end. If the number only grows, check "
            "which in-sync follower lags.",
            Query(
                f"sum by (service) (tidelog_broker_uncommitted_records{{{CLUSTER}}})",
                "{{service}}",
            ),
        ),
        graph(
            "Stalled high watermarks and waiting consumers",
            "Partitions whose high watermark is stalled, and partitions whose consumers get "
            "nothing for that reason. Run `tidelog explain`.",
            [
                Query(
                    f"sum by (service) (tidelog_broker_hw_stalled_partitions{{{CLUSTER}}})",
                    "{{service}}: stalled",
                ),
                Query(
                    f"sum by (service) (tidelog_waiting_consumers_partitions{{{CLUSTER}}})",
                    "{{service}}: consumers waiting",
                ),
            ],
        ),
        event_bars(
            "ISR shrinks by leader and cause",
            "Replicas that leaders removed from ISRs. A single peak is a restart. If a rate "
            "persists, check the disk, network and event loop of the follower; run `tidelog trace "
            "TOPIC/PARTITION` for the order of events.",
            Query(
                times("tidelog_isr_shrinks_total", CLUSTER, "service, cause") + " > 0",
                "{{service}}: {{cause}}",
            ),
        ),
        event_bars(
            "ISR expansions by leader",
            "Replicas that leaders added to ISRs again. Compare with the ISR shrinks at the left: "
            "equal numbers mean that all followers recovered.",
            Query(times("tidelog_isr_expands_total", CLUSTER, "service") + " > 0", "{{service}}"),
        ),
    ]


def _spark() -> list[Panel]:
    of_topics = f'{CLUSTER}, topic=~"$topic"'
    lag = f"tidelog_spark_lag_records{{{of_topics}}}"
    age = f"max by (query) (tidelog_spark_progress_age_seconds{{{CLUSTER}}})"
    return [
        rows(
            "Spark queries with the highest lag",
            "Queries by the number of records that they have not read. If the age grows, the "
            "query hangs and its lag is outdated: check its jobs in Spark's web UI.",
            [
                Query(f"sum by (query) ({lag})", "records"),
                Query(age, "age of the last progress"),
            ],
            ["query"],
            empty="no Spark driver reports; see `watch` in the Spark guide",
            units=[NUMBER, SECONDS],
        ),
        graph(
            "Spark query lag in records",
            "Records that the query has not read. If the number only grows, raise the read rate: "
            "add cores, or raise maxOffsetsPerTrigger.",
            Query(f"sum by (query) ({lag})", "{{query}}"),
        ),
        graph(
            "Spark records read per second",
            "Records that the query reads. Compare with the records written to its topics: the "
            "query falls behind if more are written.",
            Query(per_second("tidelog_spark_rows_total", CLUSTER, "query"), "{{query}}"),
            RECORDS_PER_SECOND,
        ),
        graph(
            "Time since the last progress by Spark query",
            "Compare with the usual duration of a micro-batch. If it is longer, check the query's "
            "jobs in Spark's web UI, and run `tidelog explain` for partitions without a leader.",
            Query(age, "{{query}}"),
            SECONDS,
        ),
        graph(
            "Spark query lag by partition",
            "The ten partitions with the highest lag. If all are alike, the query is slow. If one "
            "stands out, check whether its keys are written more often than others.",
            Query(
                f"topk(10, max by (query, topic, partition) ({lag}))",
                "{{query}}: {{topic}}/{{partition}}",
            ),
        ),
        event_bars(
            "Failed Spark queries",
            "Queries that ended with an error. Check the driver's log: the error says what to do.",
            Query(times("tidelog_spark_failures_total", CLUSTER, "query") + " > 0", "{{query}}"),
        ),
    ]
