"""Partitions with another leader than the preferred one."""

from __future__ import annotations

import pytest

from unit.inspection.explain.described import DescribedCluster, causes_of, found


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


def test_non_preferred_leaders_are_one_note(cluster: DescribedCluster) -> None:
    for i in range(3):
        cluster.partition(f"sea/{i}", leader=2)
    note = found(cluster.explain(), "not_preferred_leader")
    assert (note.severity, note.broker, note.partition_count) == ("info", 1, 3)
    assert note.next_step.endswith("tidelog leaders elect-preferred sea/0 sea/1 sea/2")


def test_many_non_preferred_leaders_are_listed_by_topic(
    cluster: DescribedCluster,
) -> None:
    for i in range(8):
        cluster.partition(f"sea/{i}", leader=2)
        cluster.partition(f"bay/{i}", leader=2)
    note = found(cluster.explain(), "not_preferred_leader")
    assert note.next_step.endswith("tidelog leaders elect-preferred bay sea")


def test_electing_preferred_leaders_needs_a_controller(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", leader=2)
    cluster.stop_controller()
    assert "Start a controller" in found(cluster.explain(), "not_preferred_leader").next_step


def test_a_preferred_leader_in_maintenance_leads_after_its_end(
    cluster: DescribedCluster,
) -> None:
    for i in range(2):
        cluster.partition(f"sea/{i}", leader=2)
    cluster.in_maintenance.append(1)
    note = found(cluster.explain(), "not_preferred_leader")
    assert (note.severity, note.broker, note.partition_count) == ("info", 1, 2)
    assert "in maintenance" in note.summary
    assert "elect-preferred" not in note.next_step
    assert note.next_step.endswith("tidelog brokers maintenance 1 --off")


def test_a_dead_preferred_leader_has_its_own_cause(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", leader=2, isr=(2, 3))
    cluster.kill(1)
    assert causes_of(cluster.explain()) == ["replica_dead"]
