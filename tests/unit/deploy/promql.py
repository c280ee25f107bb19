"""Reads queries as far as the checks need, without parsing them. Prometheus itself parses them
in tests/monitoring."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidelog.spark import query_progress
from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE
from tidelog_runtime.telemetry.metrics.metric import Metric, MetricType

METRICS: dict[str, Metric] = {
    metric.name: metric for metrics in CATALOGUE.values() for metric in metrics
}
# Labels that Prometheus adds to every series of its scrape targets.
TARGET_LABELS = frozenset({"cluster", "service", "job", "instance"})
# Series of Prometheus itself and of its client library.
OTHER_METRICS = {
    "up": frozenset[str](),
    "ALERTS": frozenset({"alertname", "alertstate", "severity", "broker", "follower"}),
    "process_cpu_seconds_total": frozenset[str](),
    "process_resident_memory_bytes": frozenset[str](),
    "process_open_fds": frozenset[str](),
    "process_max_fds": frozenset[str](),
}
# Series of Spark queries.
OTHER_METRICS |= {figure.name: frozenset(figure.labels) for figure in query_progress.GAUGES}
OTHER_METRICS |= {
    f"{figure.name}_total": frozenset(figure.labels) for figure in query_progress.COUNTERS
}

_SELECTOR = re.compile(r"\b(ALERTS|up|process_[a-z_]+|tidelog_[a-z_]+)\b(?:\{([^{}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
_KEPT = re.compile(r"\bby \(([a-z_, ]+)\)")
_COUNTED = re.compile(r"\b(?:rate|increase)\(([a-z_]+)")


def selectors(query: str) -> Iterator[tuple[str, list[str]]]:
    """The name and the label matchers of each metric."""
    for name, matchers in _SELECTOR.findall(query):
        yield name, _MATCHER.findall(matchers)


def labels_of(name: str) -> frozenset[str]:
    """The labels of a series. Raises KeyError if no service has it."""
    if name in OTHER_METRICS:
        return OTHER_METRICS[name] | TARGET_LABELS
    base = re.sub(r"_(bucket|count|sum)$", "", name)
    if base != name and METRICS[base].type is MetricType.HISTOGRAM:
        own = {*METRICS[base].labels, *(["le"] if name.endswith("_bucket") else [])}
        return TARGET_LABELS | own
    if METRICS[name].type is MetricType.HISTOGRAM:
        raise KeyError(f"{name} is a histogram: ask for its _bucket, _count or _sum")
    return TARGET_LABELS.union(METRICS[name].labels)


def kept_labels(query: str) -> Iterator[set[str]]:
    """The labels that each aggregation keeps."""
    for names in _KEPT.findall(query):
        yield {name.strip() for name in names.split(",")}


def counted(query: str) -> list[str]:
    """The metrics to which rate or increase is applied."""
    return _COUNTED.findall(query)


def is_counter(name: str) -> bool:
    return name.endswith(("_total", "_bucket", "_count", "_sum"))
