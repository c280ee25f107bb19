"""Processes of several releases, a level that can be raised, and a process that does not fit it."""

from __future__ import annotations

import pytest

from tidelog.inspection.explain.releases import MIXED_FOR_MS
from tidelog.inspection.state_reports import RejectedStart
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def upgraded(cluster: DescribedCluster, version: str, ago_ms: int) -> None:
    """Broker 2 was started with another release."""
    cluster.versions[2] = version
    cluster.started_at_ms[2] = NOW_MS - ago_ms


def test_an_upgrade_in_progress_is_no_finding(cluster: DescribedCluster) -> None:
    upgraded(cluster, "0.2.0", MIXED_FOR_MS - 1)
    assert cluster.explain() == []


def test_an_upgrade_that_was_not_finished_within_a_day_is_reported(
    cluster: DescribedCluster,
) -> None:
    upgraded(cluster, "0.2.0", MIXED_FOR_MS)
    differ = found(cluster.explain(), "releases_differ")
    assert differ.severity == "info"
    assert differ.summary.startswith(
        "processes of releases 0.1.0, 0.2.0 run in one cluster for 24 h"
    )
    assert "0.2.0: broker-2" in text_of(differ)


def test_releases_that_do_not_work_together_are_a_warning_at_once(
    cluster: DescribedCluster,
) -> None:
    upgraded(cluster, "0.3.0", 0)
    assert found(cluster.explain(), "releases_differ").severity == "warning"


def test_a_level_that_all_processes_support_can_be_raised(cluster: DescribedCluster) -> None:
    cluster.raisable_level = 2
    raisable = found(cluster.explain(), "level_raisable")
    assert raisable.severity == "info"
    assert raisable.next_step.endswith("tidelog cluster upgrade.")


@pytest.mark.parametrize(("level", "raisable"), [(2, 2), (0, 0)])
def test_without_a_higher_level_there_is_nothing_to_raise(
    cluster: DescribedCluster, level: int, raisable: int
) -> None:
    cluster.feature_level, cluster.raisable_level = level, raisable
    assert cluster.explain() == []


def test_a_broker_that_does_not_support_the_level_needs_another_release(
    cluster: DescribedCluster,
) -> None:
    cluster.kill(2, cause="broker_stopped")
    reason = "cluster c is at feature level 2, and this process of release 0.1.0 supports level 1"
    cluster.rejected_starts.append(RejectedStart(2, NOW_MS - 4_000, "version", reason))
    findings = cluster.explain()
    assert causes_of(findings) == ["broker_cannot_start"]
    assert reason in findings[0].summary
    assert findings[0].next_step.startswith("Start broker 2 with the release that its last start")
