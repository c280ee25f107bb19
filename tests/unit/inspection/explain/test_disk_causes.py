"""Faults of a broker's disk and their consequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.inspection.state_reports import (
    DamagedOffsets,
    DivergedOffsets,
)
from unit.inspection.explain.described import (
    DescribedCluster,
    causes_of,
    found,
    text_of,
)


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ("disk_full", "disk_full"),
        ("disk_error", "disk_error"),
        ("corrupt", "replica_corrupt"),
        ("rejects_leader", "replica_rejects"),
    ],
)
def test_a_replica_that_rejects_records_has_a_reason(
    cluster: DescribedCluster, failure: str, cause: str
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.partition("bay/0")
    cluster.replica(
        "sea/0", 2, failure=failure, failure_message="the kernel rejected it", failure_ms=3_000
    )
    findings = cluster.explain()
    assert causes_of(findings) == [cause]
    assert (findings[0].broker, findings[0].partitions) == (2, ("sea/0",))
    assert 'broker-2 reports: "the kernel rejected it", for 3.0 s' in text_of(findings[0])


def test_a_leader_that_rejects_records_is_critical(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0")
    cluster.partition("bay/0", (2, 1))
    for name, for_ms in (("sea/0", 12_000), ("bay/0", 10)):
        cluster.replica(name, 1, failure="disk_full", failure_message="no room", failure_ms=for_ms)
    full = found(cluster.explain(), "disk_full")
    assert full.severity == "critical"
    assert full.summary == (
        "broker 1 has no room on its disk since 2023-11-14T22:13:08Z (12.0 s): writes fail in 1 "
        "partition that it leads, 1 replica accepting no records"
    )


def test_a_leadership_that_left_a_full_disk_names_both_leaders(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", leader=2, isr=(2, 3))
    cluster.replica(
        "sea/0",
        1,
        failure="disk_full",
        failure_message="no space",
        failure_ms=5_000,
        failed_leader_epoch=4,
    )
    full = found(cluster.explain(), "disk_full")
    assert full.severity == "warning"
    assert "leadership of 1 partition transferred to other brokers" in full.summary
    assert (
        "sea/0: broker 1 led it in epoch 4, its writes have failed for 5.0 s, and broker 2 leads "
        "it now, in epoch 5"
    ) in text_of(full)


def test_each_effect_of_a_failing_disk_has_its_line_of_evidence(
    cluster: DescribedCluster,
) -> None:
    for number in range(5):
        name = f"bay/{number}"
        cluster.partition(name, (2, 1, 3))
        cluster.replica(name, 1, failure="disk_error", failure_message="read-only", failure_ms=78)
    cluster.partition("sea/0", leader=2, isr=(2, 3))
    left: dict[str, Any] = {"failure": "disk_error", "failure_message": "read-only"}
    cluster.replica("sea/0", 1, **left, failure_ms=78, failed_leader_epoch=4)

    failing = found(cluster.explain(), "disk_error")

    assert "leadership of 1 partition transferred to other brokers" in failing.summary
    assert "sea/0: broker 1 led it in epoch 4" in text_of(failing)
    assert 'bay/0: broker-1 reports: "read-only", for 78 ms' in text_of(failing)


def test_a_damaged_leader_is_critical_and_waits_for_the_store_to_resign(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.replica("sea/0", 1, role="damaged", failure="corrupt", leader=None)
    cluster.lose_store("broker-1")
    damaged = found(cluster.explain(), "replica_corrupt")
    assert damaged.severity == "critical"
    assert damaged.because == ("store_unreachable of broker 1",)


def test_unreadable_records_are_listed_by_their_offsets(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (1,))
    cluster.replica("sea/0", 1, damaged=(DamagedOffsets(5, 9), DamagedOffsets(20, 21)))
    damaged = found(cluster.explain(), "records_damaged")
    assert (damaged.severity, damaged.broker) == ("critical", 1)
    assert "records of sea/0 at offsets 5 to 8, 20 to 20 cannot be read" in damaged.summary
    assert "all others from 0 to 99 can be read" in text_of(damaged)
    assert "--on-damage skip" in damaged.next_step


def test_divergent_replicas_are_named_with_both_digests_and_files(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    other = DivergedOffsets(
        2,
        0,
        40,
        "00000000000000aa",
        "00000000000000bb",
        batch_offset=20,
        batch="offset 20, 5 records",
        other_batch="offset 20, 6 records",
        segments=("00000000000000000000.log",),
        other_segments=("00000000000000000007.log",),
        evidence="evidence/x.diverged",
    )
    cluster.replica("sea/0", 1, diverged=(other,))
    diverged = found(cluster.explain(), "replicas_diverged")
    assert (diverged.severity, diverged.topic, diverged.partition) == ("critical", "sea", 0)
    assert diverged.summary == (
        "the replicas of sea/0 on brokers 1, 2 hold different committed records, at offsets 0 to "
        "39; the checksums of all of them hold"
    )
    line = text_of(diverged)
    assert "broker-1 has digest 00000000000000aa at offsets 0 to 39" in line
    assert "broker 2 00000000000000bb; the first batch that differs is offset 20, 5 records" in line
    assert "00000000000000000000.log on broker 1 and 00000000000000000007.log on broker 2" in line
    assert "evidence/x.diverged in the data_dir of broker 1" in line
    assert "replicas/sea-0.*" in diverged.next_step
    assert "tidelog leaders move sea/0=BROKER" in diverged.next_step


def test_a_disk_that_returns_other_records_than_written_is_named(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2,))
    own = DivergedOffsets(2, 0, 40, "00000000000000aa", "00000000000000bb")
    cluster.replica("sea/0", 2, diverged=(own,))
    diverged = found(cluster.explain(), "replicas_diverged")
    assert diverged.summary.startswith(
        "the disk of broker 2 holds other committed records of sea/0"
    )
    assert "appended digest 00000000000000aa at offsets 0 to 39, and its disk holds" in (
        text_of(diverged)
    )
    # The only copy must not be moved away.
    assert "copied again" not in diverged.next_step
    assert "no other replica of sea/0" in diverged.next_step


def test_a_disk_without_inodes_is_not_only_reported_as_short_of_bytes(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.replica("sea/0", 2, failure="disk_full", failure_message="no room", failure_ms=1_000)
    broker = cluster.brokers[2]
    cluster.brokers[2] = replace(broker, disk_free_bytes=1 << 30, disk_inodes=5_000)
    full = found(cluster.explain(), "disk_full")
    assert full.summary.startswith("broker 2 has no inodes left on its disk since")
    assert "0 of 5,000 inodes left" in text_of(full)
    assert "df -i" in full.next_step
