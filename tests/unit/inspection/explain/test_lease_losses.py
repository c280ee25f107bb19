"""Repeated lease losses of a single broker, and of many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.inspection.controller_reports import LeaseEnds
from tidelog.inspection.explain import Listening
from tidelog.inspection.resource_pressures import BrokerPressure
from tidelog.inspection.state_reports import RecentElections, StoreHealth
from unit.inspection.explain.described import DescribedCluster, causes_of, found, text_of

WINDOW_MS = 120_000


@pytest.fixture
def cluster() -> DescribedCluster:
    """Partitions of broker 2 have changed leaders, which each of its followers has seen."""
    described = DescribedCluster()
    described.partition("sea/0", (2, 1, 3))
    for broker_id in described.brokers:
        counts(described, broker_id, leaders=8)
    return described


def counts(cluster: DescribedCluster, broker_id: int, lost: int = 0, **others: Any) -> None:
    elections = RecentElections(
        topic="sea", partition=0, window_ms=WINDOW_MS, last_ms=3_000, registrations_lost=lost
    )
    broker = cluster.brokers[broker_id]
    cluster.brokers[broker_id] = replace(broker, elections=replace(elections, **others))


def test_a_broker_whose_process_pauses_repeatedly_is_the_cause(
    cluster: DescribedCluster,
) -> None:
    counts(cluster, 2, lost=4, leaders=8, standstills=4, longest_standstill_ms=6_100)
    findings = cluster.explain()
    assert causes_of(findings) == ["repeated_elections"]
    repeated = findings[0]
    assert repeated.broker == 2
    assert "broker 2 is paused repeatedly" in repeated.summary
    assert "did not run for a second or longer 4 times, the longest 6.1 s" in text_of(repeated)
    assert "sea/0 has had 8 leader elections" in text_of(repeated)
    assert "stops the process or the machine of broker 2" in repeated.next_step
    assert "etcd" not in text_of(repeated)
    assert cluster.explain(broker=2) == findings
    assert cluster.explain(broker=3) == []


def test_a_broker_without_pauses_is_cut_off_from_the_store(
    cluster: DescribedCluster,
) -> None:
    counts(cluster, 2, lost=3, standstills=1)
    repeated = found(cluster.explain(), "repeated_elections")
    assert repeated.broker == 2
    assert "while other brokers kept theirs" in repeated.summary
    assert "network between broker 2 and the metadata store" in repeated.next_step
    assert "lease_ttl_seconds" not in repeated.next_step


def test_a_paused_broker_is_named_by_the_controller(
    cluster: DescribedCluster,
) -> None:
    cluster.lease_ends.append(LeaseEnds(2, 4, WINDOW_MS, 2_000))
    cluster.pause(2)
    repeated = found(cluster.explain(), "repeated_elections")
    assert (repeated.broker, repeated.because) == (2, ("broker_paused of broker 2",))
    assert "has ended 4 times" in repeated.summary
    assert "it does not report" in text_of(repeated)


def test_a_single_expired_lease_of_another_broker_is_no_sign_of_the_store(
    cluster: DescribedCluster,
) -> None:
    counts(cluster, 2, lost=4, standstills=4)
    counts(cluster, 3, lost=1)
    assert found(cluster.explain(), "repeated_elections").broker == 2


@pytest.mark.parametrize("ends", ["of another broker", "of controllers"])
def test_repeated_lease_expiry_of_others_points_to_the_store(
    cluster: DescribedCluster, ends: str
) -> None:
    counts(cluster, 2, lost=4)
    counts(cluster, 3, lost=2, controllers=3 if ends == "of controllers" else 0)
    repeated = found(cluster.explain(), "repeated_elections")
    assert repeated.broker == -1
    assert "Check etcd" in repeated.next_step


def test_a_replica_that_an_election_left_out_follows_from_repeated_elections() -> None:
    cluster = DescribedCluster()
    cluster.partition("bay/0", (1, 3), isr=(1,), min_isr=2)
    assert found(cluster.explain(), "under_min_isr").because == ()
    for broker_id in cluster.brokers:
        counts(cluster, broker_id, lost=3)
    assert found(cluster.explain(), "under_min_isr").because == ("repeated_elections",)
    topic = cluster.explain(topic="bay")
    assert {"under_min_isr", "repeated_elections"} <= set(causes_of(topic))


def test_a_slow_store_is_the_cause_although_only_one_lease_expired(
    cluster: DescribedCluster,
) -> None:
    counts(cluster, 2, lost=3)
    for service in ("broker-1", "broker-2", "broker-3", "controller-1"):
        cluster.stores[service] = StoreHealth(last_latency_ms=2, max_latency_ms=3_000)
    assert found(cluster.explain(), "repeated_elections").because == ("store_slow",)


def test_a_paused_broker_is_named_beside_leases_that_expire_for_the_store(
    cluster: DescribedCluster,
) -> None:
    counts(cluster, 1, lost=3)
    counts(cluster, 2, lost=4, standstills=5)
    counts(cluster, 3, lost=3)
    repeated = [f for f in cluster.explain() if f.cause == "repeated_elections"]
    assert [finding.broker for finding in repeated] == [-1, 2]
    assert "broker-1, broker-3 lost the registration" in repeated[0].summary


def test_pauses_that_cost_no_lease_are_no_finding(cluster: DescribedCluster) -> None:
    for broker_id in cluster.brokers:
        counts(cluster, broker_id, standstills=5)
    assert cluster.explain() == []


def test_past_lease_expiries_are_no_finding(cluster: DescribedCluster) -> None:
    for broker_id in cluster.brokers:
        counts(cluster, broker_id)
    cluster.lease_ends.append(LeaseEnds(2, 4, WINDOW_MS, 50_000))
    cluster.silence(2, Listening.ACCEPTS)
    assert "repeated_elections" not in causes_of(cluster.explain())


def test_elections_away_from_a_failing_disk_follow_from_it(cluster: DescribedCluster) -> None:
    cluster.partition("bay/0")
    cluster.replica("sea/0", 2, failure="disk_error", failure_message="Input/output error")
    repeated = found(cluster.explain(), "repeated_elections")
    assert (repeated.broker, repeated.because) == (2, ("disk_error of broker 2",))
    assert repeated.next_step.startswith("Correct what is wrong with broker 2")
    assert "etcd" not in text_of(repeated)


def test_a_disk_that_fails_for_another_partition_explains_no_elections(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("bay/0")
    cluster.replica("bay/0", 2, failure="disk_error", failure_message="Input/output error")
    assert found(cluster.explain(), "repeated_elections").because == ()


@pytest.mark.parametrize(
    ("resource", "cause"), [("cpu", "cpu_starved"), ("memory", "memory_short")]
)
def test_elections_of_replicas_of_a_starved_broker_follow_from_that(
    cluster: DescribedCluster, resource: str, cause: str
) -> None:
    cluster.pressures.append(BrokerPressure(2, resource, 9_000, 10_000, 1))
    assert found(cluster.explain(), "repeated_elections").because == (f"{cause} of broker 2",)
    counts(cluster, 3, leaders=8, controllers=3)
    assert found(cluster.explain(), "repeated_elections").because == ()


def test_a_broker_without_a_replica_does_not_explain_the_elections(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 1))
    cluster.pressures.append(BrokerPressure(3, "cpu", 9_000, 10_000, 1))
    assert found(cluster.explain(), "repeated_elections").because == ()


def test_elections_after_a_crash_follow_from_it(cluster: DescribedCluster) -> None:
    cluster.kill(2)
    assert found(cluster.explain(), "repeated_elections").because == ("replica_dead of broker 2",)
