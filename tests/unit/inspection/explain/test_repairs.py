"""Repaired damage stays visible as a note. Repairable damage is no loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.state_reports import DamagedOffsets, RepairedDamage
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, text_of

SEA_0 = RepairedDamage("sea", 0, NOW_MS - 60_000, NOW_MS - 59_000, "CRC32C of the batch is 0x1")
SEA_1 = replace(SEA_0, partition=1, repaired_at_ms=NOW_MS - 10_000)


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    described.partition("sea/1")
    return described


def repaired(cluster: DescribedCluster, broker_id: int, *damage: RepairedDamage) -> None:
    cluster.brokers[broker_id] = replace(cluster.brokers[broker_id], repaired_damage=damage)


def test_repaired_damage_names_the_broker_the_replicas_and_the_damage(
    cluster: DescribedCluster,
) -> None:
    repaired(cluster, 2, SEA_0, SEA_1)
    [finding] = cluster.explain()

    assert (finding.cause, finding.severity, finding.broker) == ("damage_repaired", "info", 2)
    assert finding.partitions == ("sea/1", "sea/0")
    assert "CRC32C of the batch is 0x1" in text_of(finding)
    assert "1 min 0 s ago" in text_of(finding)
    assert "tidelog brokers scrub 2" in finding.next_step


def test_a_replica_that_fails_again_is_not_reported_as_repaired(cluster: DescribedCluster) -> None:
    cluster.replica("sea/0", 2, failure="disk_error", failure_message="Input/output error")
    repaired(cluster, 2, SEA_0)
    assert "damage_repaired" not in causes_of(cluster.explain())
    repaired(cluster, 2, SEA_0, SEA_1)
    [finding] = [f for f in cluster.explain() if f.cause == "damage_repaired"]
    assert finding.partitions == ("sea/1",)


def test_repaired_damage_is_reported_only_in_its_scope(cluster: DescribedCluster) -> None:
    repaired(cluster, 2, SEA_1)

    assert causes_of(cluster.explain("sea", 1)) == ["damage_repaired"]
    assert causes_of(cluster.explain("sea", 0)) == []
    assert causes_of(cluster.explain(broker=2)) == ["damage_repaired"]
    assert causes_of(cluster.explain(broker=1)) == []


def test_damage_found_at_startup_may_be_copied_from_another_replica(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("bay/0", (1, 2))
    cluster.replica("bay/0", 2, damaged=(DamagedOffsets(5, 9),))
    cluster.brokers[2] = replace(
        cluster.brokers[2], has_full_state=False, state="starting", start_phase="registration"
    )
    assert "records_damaged" not in causes_of(cluster.explain())


def test_records_of_an_out_of_service_replica_are_copied_again_and_not_lost(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("bay/0", (1, 2))
    cluster.replica("bay/0", 2, role="damaged", failure="corrupt", damaged=(DamagedOffsets(5, 9),))
    assert "records_damaged" not in causes_of(cluster.explain())
