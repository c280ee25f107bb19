"""The topic dashboard: health, throughput and size of one topic or several."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from tidelog_dashboards.frame import CLUSTER, TOPIC, new_dashboard
from tidelog_dashboards.panels import (
    BYTES,
    BYTES_PER_SECOND,
    NUMBER,
    RECORDS_PER_SECOND,
    SECONDS,
    Panel,
    Query,
    Steps,
    graph,
    number,
    rows,
)
from tidelog_dashboards.promql import per_second

_TOPICS = f'{CLUSTER}, topic=~"$topic"'


def topic() -> dashboard.Dashboard:
    return new_dashboard(
        "tidelog-topic",
        "topic",
        "Health, throughput and size of the selected topics.",
        [TOPIC],
        [
            ("Health", [*_summary(), *_problems()]),
            ("Throughput", _throughput()),
            ("Size", _size()),
        ],
    )


def _summary() -> list[Panel]:
    return [
        number(
            "Maximum replication lag",
            "Age of the oldest record that any follower of these topics lacks, among replicas "
            "that have a series. Run `tidelog explain TOPIC`.",
            f"max(tidelog_replication_lag_seconds{{{_TOPICS}}})",
            Steps(watch=5, bad=10),
            SECONDS,
        ),
        number(
            "Bytes written per second",
            "Bytes from producers. If a topic is too much for its leaders, spread it over more "
            "partitions.",
            per_second("tidelog_topic_bytes_total", f'{_TOPICS}, flow="produce"'),
            Steps(),
            BYTES_PER_SECOND,
        ),
        number(
            "Bytes read per second",
            "Bytes to consumers. Compare with the bytes written: if fewer are read, consumers "
            "fall behind.",
            per_second("tidelog_topic_bytes_total", f'{_TOPICS}, flow="fetch"'),
            Steps(),
            BYTES_PER_SECOND,
        ),
        number(
            "Records written per second",
            "Records from producers. If there are none and you expect some, check the errors of "
            "the producers.",
            per_second("tidelog_topic_records_total", f'{_TOPICS}, flow="produce"'),
            Steps(),
            RECORDS_PER_SECOND,
        ),
        number(
            "Records read per second",
            "Records to consumers. If there are none and you expect some, run `tidelog explain "
            "TOPIC`.",
            per_second("tidelog_topic_records_total", f'{_TOPICS}, flow="fetch"'),
            Steps(),
            RECORDS_PER_SECOND,
        ),
        number(
            "Log size with all replicas",
            "Bytes of all replicas. Lower the retention if disks fill up.",
            f"sum(tidelog_topic_log_size_bytes{{{_TOPICS}}})",
            Steps(),
            BYTES,
        ),
    ]


def _problems() -> list[Panel]:
    return [
        rows(
            "Unhealthy partitions",
            "Partitions with their problem, as reported by the active controller. Run `tidelog "
            "explain TOPIC/PARTITION`.",
            [Query(f"tidelog_cluster_unwell_partition{{{_TOPICS}}} == 1")],
            ["topic", "partition", "problem"],
            empty="none, if a controller is active",
        ),
        rows(
            "Lagging replicas",
            "Replicas that have a series. Run `tidelog explain TOPIC/PARTITION` for the reason.",
            [
                Query(
                    "max by (topic, partition, follower) (tidelog_replication_lag_seconds"
                    f"{{{_TOPICS}}})",
                    "age",
                ),
                Query(
                    "max by (topic, partition, follower) (tidelog_replication_lag_records"
                    f"{{{_TOPICS}}})",
                    "records",
                ),
            ],
            ["topic", "partition", "follower"],
            empty="no replica lags",
            units=[SECONDS, NUMBER],
        ),
    ]


def _throughput() -> list[Panel]:
    metrics = (
        ("Bytes", "tidelog_topic_bytes_total", BYTES_PER_SECOND),
        ("Records", "tidelog_topic_records_total", RECORDS_PER_SECOND),
    )
    return [
        graph(
            f"{what} {done} by topic",
            description,
            Query(per_second(metric, f'{_TOPICS}, flow="{flow}"', "topic"), "{{topic}}"),
            unit,
        )
        for what, metric, unit in metrics
        for flow, done, description in (
            (
                "produce",
                "written",
                "From producers. If the rate drops, check the rejected requests and the producers.",
            ),
            (
                "fetch",
                "read",
                "To consumers. If the rate stays below what is written, consumers fall behind: "
                "check them.",
            ),
        )
    ]


def _size() -> list[Panel]:
    size = per_second("tidelog_topic_bytes_total", _TOPICS, "topic, flow")
    records = per_second("tidelog_topic_records_total", _TOPICS, "topic, flow")
    return [
        graph(
            "Log size by topic",
            "Bytes of all replicas. If a topic is too large, lower retention_bytes or "
            "retention_ms.",
            Query(f"sum by (topic) (tidelog_topic_log_size_bytes{{{_TOPICS}}})", "{{topic}}"),
            BYTES,
        ),
        graph(
            "Log size by topic and broker",
            "If brokers differ much, the partitions or the keys are uneven: check the largest "
            "partitions.",
            Query(f"tidelog_topic_log_size_bytes{{{_TOPICS}}}", "{{topic}} on {{service}}"),
            BYTES,
        ),
        rows(
            "Largest partitions",
            "The 20 largest partitions. If one outgrows the others of its topic, check the keys "
            "of the producers.",
            [
                Query(
                    "topk(20, max by (topic, partition) (tidelog_partition_log_size_bytes"
                    f"{{{_TOPICS}}}))",
                    "bytes",
                )
            ],
            ["topic", "partition"],
            empty="none",
            units=[BYTES],
        ),
        graph(
            "Record size",
            "Bytes per record. If the size jumps, check which producer writes different records.",
            Query(f"{size} / {records}", "{{topic}} {{flow}}"),
            BYTES,
        ),
    ]
