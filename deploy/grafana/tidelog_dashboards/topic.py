"""One topic, or several: who writes and reads it, how large is it, is it well?"""

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
        "Who writes and reads a topic, how large it is, and whether its partitions are well.",
        [TOPIC],
        [
            ("Is it well?", _health()),
            ("Who writes and reads it?", _data()),
            ("How large is it?", _size()),
        ],
    )


def _health() -> list[Panel]:
    return [
        number(
            "How far is its worst replica behind?",
            "Age of the oldest record that any follower of these topics lacks, among those that "
            "have series. Run `tidelog explain TOPIC`.",
            f"max(tidelog_replication_lag_seconds{{{_TOPICS}}})",
            Steps(watch=5, bad=10),
            SECONDS,
        ),
        number(
            "How many bytes are written a second?",
            "By producers. Spread a topic that is too much for its leaders over more partitions.",
            per_second("tidelog_topic_bytes_total", f'{_TOPICS}, flow="produce"'),
            Steps(),
            BYTES_PER_SECOND,
        ),
        number(
            "How many bytes are read a second?",
            "By consumers. Below what is written, they fall behind: look at them.",
            per_second("tidelog_topic_bytes_total", f'{_TOPICS}, flow="fetch"'),
            Steps(),
            BYTES_PER_SECOND,
        ),
        number(
            "How many records are written a second?",
            "By producers. None where you expect some: look at the producers' errors.",
            per_second("tidelog_topic_records_total", f'{_TOPICS}, flow="produce"'),
            Steps(),
            RECORDS_PER_SECOND,
        ),
        number(
            "How many records are read a second?",
            "By consumers. None where you expect some: run `tidelog explain TOPIC`.",
            per_second("tidelog_topic_records_total", f'{_TOPICS}, flow="fetch"'),
            Steps(),
            RECORDS_PER_SECOND,
        ),
        number(
            "How large is it, with all its replicas?",
            "Lower its retention if disks fill up.",
            f"sum(tidelog_topic_log_size_bytes{{{_TOPICS}}})",
            Steps(),
            BYTES,
        ),
        rows(
            "Which of its partitions are unwell, and how?",
            "As the active controller sees them. Run `tidelog explain TOPIC/PARTITION`.",
            [Query(f"tidelog_cluster_unwell_partition{{{_TOPICS}}} == 1")],
            ["topic", "partition", "problem"],
            empty="none, if a controller is active",
        ),
        rows(
            "Which of its replicas lag?",
            "Those that have series of their own. Run `tidelog explain TOPIC/PARTITION` for the "
            "reason.",
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
            empty="none lags",
            units=[SECONDS, NUMBER],
        ),
    ]


def _data() -> list[Panel]:
    metrics = (
        ("bytes", "tidelog_topic_bytes_total", BYTES_PER_SECOND),
        ("records", "tidelog_topic_records_total", RECORDS_PER_SECOND),
    )
    return [
        graph(
            f"How many {what} are {done}?",
            tells,
            [Query(per_second(metric, f'{_TOPICS}, flow="{flow}"', "topic"), "{{topic}}")],
            unit,
        )
        for what, metric, unit in metrics
        for flow, done, tells in (
            (
                "produce",
                "written",
                "By topic. Where it breaks off, look at what is refused, and at the producers.",
            ),
            (
                "fetch",
                "read",
                "By topic. Where it stays below what is written, consumers fall behind: look at "
                "them.",
            ),
        )
    ]


def _size() -> list[Panel]:
    size = per_second("tidelog_topic_bytes_total", _TOPICS, "topic, flow")
    records = per_second("tidelog_topic_records_total", _TOPICS, "topic, flow")
    return [
        graph(
            "How large is each topic?",
            "With all its replicas. Where it is too much, lower retention_bytes or retention_ms.",
            [Query(f"sum by (topic) (tidelog_topic_log_size_bytes{{{_TOPICS}}})", "{{topic}}")],
            BYTES,
        ),
        graph(
            "How large is each topic on each broker?",
            "Where brokers differ much, its partitions or its keys are uneven: look at the "
            "largest partitions.",
            [Query(f"tidelog_topic_log_size_bytes{{{_TOPICS}}}", "{{topic}} on {{service}}")],
            BYTES,
        ),
        rows(
            "Which partitions are the largest?",
            "Where one outgrows its siblings, look at the producers' keys.",
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
            "How large is a record?",
            "Bytes divided by records: the size of a record. Where it jumps, look who writes "
            "something else.",
            [Query(f"{size} / {records}", "{{topic}} {{flow}}")],
            BYTES,
        ),
    ]
