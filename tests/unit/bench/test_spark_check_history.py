"""The history for the benchmark of the Spark check has the anomalies that it declares."""

from __future__ import annotations

import pytest

from bench.spark_check.anomaly_plan import AnomalyPlan
from bench.spark_check.generator import operations_of, segments_of
from tidelog.history import Anomaly, check_history


def test_the_check_finds_exactly_the_planted_anomalies() -> None:
    planted = AnomalyPlan.of_operations(60_000, of_each=2, seed=3)
    operations = [
        operation
        for segment in segments_of(planted)
        for operation in operations_of(planted, segment)
    ]
    report = check_history(enumerate(operations, 2))
    assert report.findings.counts == planted.expected
    assert set(report.findings.counts) == set(Anomaly)
    assert abs(report.operations - 60_000) < 6_000


def test_another_seed_plants_elsewhere() -> None:
    one, other = (AnomalyPlan.of_operations(60_000, of_each=2, seed=seed) for seed in (1, 2))
    assert one.places != other.places
    assert one.expected == other.expected


def test_a_history_too_small_for_its_anomalies_is_an_error() -> None:
    with pytest.raises(ValueError, match="no room for 9 anomalies of each kind"):
        AnomalyPlan.of_operations(10_000, of_each=9, seed=1)
