"""A disk whose syncs hang, are slow, or return again: one finding with one step."""

from __future__ import annotations

import pytest

from tidelog.inspection.resource_pressures import BrokerPressure
from unit.inspection.explain.described import NOW_MS, DescribedCluster, found, text_of

HANGS = {"failure": "disk_error", "failure_message": "it does not return", "failure_ms": 12_000}


@pytest.fixture
def cluster() -> DescribedCluster:
    """The disk of broker 2 is slow; it leads sea/0, and led bay/0 before."""
    described = DescribedCluster()
    described.partition("sea/0", (2, 1, 3))
    described.partition("bay/0", (2, 1, 3), leader=1)
    described.pressures.append(BrokerPressure(2, "disk", 4_000, 1_000, NOW_MS - 20_000, "sync"))
    return described


def test_a_disk_that_hangs_is_not_reported_as_slow_as_well(cluster: DescribedCluster) -> None:
    cluster.replica("sea/0", 2, **HANGS, hang_over_in_ms=0)
    [hangs] = [f for f in cluster.explain() if f.severity != "info"]
    assert (hangs.cause, hangs.severity) == ("disk_error", "critical")
    assert "the disk of broker 2 hangs: a sync does not return" in hangs.summary
    assert "iostat" in hangs.next_step
    assert "If its syncs return, the broker continues by itself" in hangs.next_step


def test_a_disk_that_returns_again_is_said_to_wait(cluster: DescribedCluster) -> None:
    cluster.replica("sea/0", 2, **HANGS, hang_over_in_ms=41_000)
    cluster.replica("bay/0", 2, **HANGS, hang_over_in_ms=38_000, failed_leader_epoch=4)
    waits = found(cluster.explain(broker=2), "disk_error")
    assert waits.severity == "info"
    assert "syncs return again, and it counts as recovered in 41.0 s" in waits.summary
    assert "1 replica that accepted no records until then" in waits.summary
    assert "leadership of 1 partition transferred" in waits.summary
    assert "counts as recovered in 38.0 s if it does not hang again" in text_of(waits)
    assert waits.next_step.startswith("Nothing, if the disk does not hang again.")


def test_a_disk_with_an_error_is_repaired_even_if_it_hangs_as_well(
    cluster: DescribedCluster,
) -> None:
    cluster.replica("sea/0", 2, **HANGS, hang_over_in_ms=0)
    cluster.replica("bay/0", 2, failure="disk_error", failure_message="EIO", failure_ms=5_000)
    fails = found(cluster.explain(), "disk_error")
    assert fails.summary.startswith("the disk of broker 2 fails since")
    assert "Stop broker 2, repair the disk" in fails.next_step


def test_a_disk_that_is_only_slow_stays_slow(cluster: DescribedCluster) -> None:
    assert found(cluster.explain(), "disk_slow").broker == 2
