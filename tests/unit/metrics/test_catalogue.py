"""Naming conventions for all metrics: those of promtool's check and a few more."""

from __future__ import annotations

import re

import pytest

from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE
from tidelog_runtime.telemetry.metrics.metric import Metric, MetricType

MAX_BROKER_SERIES = 2_100
# Metrics of the client library: process_*, python_*.
LIBRARY_SERIES = 30

_METRICS = sorted(
    {f"{service}:{metric.name}": metric for service in CATALOGUE for metric in CATALOGUE[service]}
    .items()
)  # fmt: skip
# Valid name suffixes before `_total`: a unit, or the counted things.
_COUNTED = {
    *("seconds", "bytes", "records", "batches", "partitions", "replicas", "leaders", "brokers"),
    *("topics", "segments", "series", "changes", "requests", "refused", "errors", "timeouts"),
    *("dropped", "shrinks", "expands", "elections", "departures", "overdue", "deletions"),
    *("producers", "streams", "operations", "moves", "passes", "ranges", "compared", "found"),
    *("gateways", "searches"),
}
_STATES = {
    *("tidelog_build_info", "tidelog_queue_depth", "tidelog_broker_registered"),
    *("tidelog_broker_has_full_state", "tidelog_controller_active", "tidelog_controller_epoch"),
    *("tidelog_cluster_feature_level", "tidelog_cluster_unwell_partition"),
    *("tidelog_data_directory_intact", "tidelog_waits_for_broker_id"),
}
_ABBREVIATED = re.compile(r"_(s|ms|sec|secs|b|kb|mb|kib|mib|pct)(_|$)")
_FIRST_WORDS = {
    *("above", "after", "as", "at", "below", "beyond", "bring", "check", "compare", "divide"),
    *("few", "fewer", "find", "follow", "if", "join", "keep", "lower", "more", "near", "one"),
    *("read", "run", "see", "single", "spread", "start", "the"),
}


@pytest.fixture(params=_METRICS, ids=lambda param: param[0])
def metric(request: pytest.FixtureRequest) -> Metric:
    found: Metric = request.param[1]
    return found


def max_series(metric: Metric) -> int:
    """A histogram has one series for each bucket, and +Inf, _sum and _count."""
    each = len(metric.buckets) + 3 if metric.type is MetricType.HISTOGRAM else 1
    return (len(metric.series) + metric.bound) * each


def test_a_name_has_lower_case_words_after_the_prefix(metric: Metric) -> None:
    assert re.fullmatch(r"tidelog(_[a-z]+)+", metric.name)


def test_a_name_has_base_units_written_out(metric: Metric) -> None:
    assert not _ABBREVIATED.search(metric.name)
    assert "milliseconds" not in metric.name


def test_a_name_ends_with_its_unit_or_the_counted_noun(metric: Metric) -> None:
    last_word = metric.name.removesuffix("_total").rpartition("_")[2]
    assert last_word in _COUNTED or metric.name in _STATES


def test_only_counters_end_with_total(metric: Metric) -> None:
    assert metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)


def test_no_name_has_its_type_or_a_reserved_suffix(metric: Metric) -> None:
    words = set(metric.name.split("_"))
    assert not words & {"gauge", "counter", "histogram", "metric", "count", "sum", "bucket"}
    assert not {"le", "quantile", "job", "instance"} & set(metric.labels)


def test_a_histogram_is_in_seconds_with_increasing_buckets(metric: Metric) -> None:
    if metric.type is not MetricType.HISTOGRAM:
        return
    assert metric.name.endswith("_seconds")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.buckets


def test_the_help_has_a_meaning_and_then_an_action(metric: Metric) -> None:
    assert metric.meaning.endswith(".")
    assert metric.remedy.endswith(".")
    assert re.split(r"\W", metric.remedy.lower())[0] in _FIRST_WORDS
    assert "\n" not in metric.help


def test_every_series_has_a_value_for_every_label(metric: Metric) -> None:
    assert all(len(values) == len(metric.labels) for values in metric.series)
    assert len(set(metric.series)) == len(metric.series)


def test_a_metric_has_fixed_series_or_a_bound(metric: Metric) -> None:
    assert metric.series or metric.bound


@pytest.mark.parametrize("service", sorted(CATALOGUE))
def test_metric_names_are_unique_per_service(service: str) -> None:
    names = [metric.name for metric in CATALOGUE[service]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("service", sorted(CATALOGUE))
def test_the_total_number_of_series_is_within_the_bound(service: str) -> None:
    most = sum(map(max_series, CATALOGUE[service])) + LIBRARY_SERIES
    assert most <= MAX_BROKER_SERIES
