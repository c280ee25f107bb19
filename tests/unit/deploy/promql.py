"""Reads as much of a query as checks need, without parsing it; Prometheus itself does that in
tests/monitoring."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidelog.spark import query_figures
from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE
from tidelog_runtime.telemetry.metrics.metric import Metric, MetricType

METRICS: dict[str, Metric] = {
    metric.name: metric for metrics in CATALOGUE.values() for metric in metrics
}
# Given to every series by the targets that Prometheus scrapes.
TARGET_LABELS = frozenset({"cluster", "service", "job", "instance"})
# Made by Prometheus itself and by its client library.
OTHER_METRICS = {
    "up": frozenset[str](),
    "ALERTS": frozenset({"alertname", "alertstate", "severity", "broker", "follower"}),
    "process_cpu_seconds_total": frozenset[str](),
    "process_resident_memory_bytes": frozenset[str](),
    "process_open_fds": frozenset[str](),
    "process_max_fds": frozenset[str](),
}
# Those of Spark's queries.
OTHER_METRICS |= {figure.name: frozenset(figure.labels) for figure in query_figures.GAUGES}
OTHER_METRICS |= {
    f"{figure.name}_total": frozenset(figure.labels) for figure in query_figures.COUNTERS
}

_SELECTOR = re.compile(r"\b(ALERTS|up|process_[a-z_]+|tidelog_[a-z_]+)\b(?:\{([^{}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
_KEPT = re.compile(r"\bby \(([a-z_, ]+)\)")
_COUNTED = re.compile(r"\b(?:rate|increase)\(([a-z_]+)")


def selectors(query: str) -> Iterator[tuple[str, list[str]]]:
    """The name of each metric, and the labels that it is chosen by."""
    for name, matchers in _SELECTOR.findall(query):
        yield name, _MATCHER.findall(matchers)


def labels_of(name: str) -> frozenset[str]:
    """Raises KeyError for a series that no service has."""
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
    """Of each aggregation."""
    for names in _KEPT.findall(query):
        yield {name.strip() for name in names.split(",")}


def counted(query: str) -> list[str]:
    """The metrics whose rate or increase is asked for."""
    return _COUNTED.findall(query)


def is_counter(name: str) -> bool:
    return name.endswith(("_total", "_bucket", "_count", "_sum"))
