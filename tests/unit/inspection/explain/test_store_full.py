"""A store that answers reads and rejects writes."""

from __future__ import annotations

import pytest

from tidelog.inspection.state_reports import StoreHealth
from unit.inspection.explain.described import DescribedCluster, causes_of, found, text_of

PROBLEM = "etcdserver: mvcc: database space exceeded"
FULL = StoreHealth(last_latency_ms=2, write_problem=PROBLEM, rejects_writes_ms=7_000)


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def test_one_service_with_a_rejected_write_is_enough(cluster: DescribedCluster) -> None:
    cluster.stores["broker-2"] = FULL
    [finding] = cluster.explain()
    assert (finding.cause, finding.severity, finding.broker) == ("store_full", "critical", -1)
    assert f'broker-2 reports, for 7.0 s: "{PROBLEM}"' in text_of(finding)
    assert "etcdctl alarm disarm" in finding.next_step


def test_changes_that_wait_for_the_store_follow_from_it(cluster: DescribedCluster) -> None:
    cluster.stores["broker-1"] = FULL
    cluster.kill(1)
    cluster.stores["broker-2"] = FULL
    findings = cluster.explain()
    assert causes_of(findings) == ["store_full", "replica_dead", "no_leader"]
    assert "store_full" in found(findings, "no_leader").because
    assert "does not reach the metadata store now" not in text_of(found(findings, "replica_dead"))


def test_a_full_store_concerns_a_requested_broker(cluster: DescribedCluster) -> None:
    cluster.stores["broker-2"] = FULL
    assert causes_of(cluster.explain(broker=3)) == ["store_full"]
    assert cluster.explain("sea", 0) == []
