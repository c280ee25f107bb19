"""A member of the store that is cut off, and elections that are repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.inspection.model import RecentElections, StoreHealth, StoreMember
from unit.inspection.explain.described import DescribedCluster, causes_of, found, said

HERE, AWAY = "10.0.0.1:2379", "10.0.0.2:2379"
ALL = ("broker-1", "broker-2", "broker-3", "controller-1")


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def misses(cluster: DescribedCluster, *services: str, waited_ms: int = 5) -> None:
    for service in ALL:
        lost = 8_000 if service in services else -1
        members = (StoreMember(HERE), StoreMember(AWAY, lost, "no connection" if lost > 0 else ""))
        waited = waited_ms if service in services else 5
        cluster.stores[service] = StoreHealth(
            last_latency_ms=2, max_latency_ms=waited, max_latency_ago_ms=7_000, members=members
        )


def test_a_member_that_nobody_reaches_is_named_and_the_network_is_not_blamed(
    cluster: DescribedCluster,
) -> None:
    misses(cluster, *ALL)
    findings = cluster.explain()
    assert causes_of(findings) == ["store_member_unreachable"]
    assert findings[0].severity == "warning"
    assert f"member {AWAY} of the metadata store is down or cut off" in findings[0].summary
    assert "broker-2 has had no answer of it for 8.0 s" in said(findings[0])
    assert HERE not in said(findings[0])


def test_slow_answers_of_those_that_miss_a_member_belong_to_it(cluster: DescribedCluster) -> None:
    misses(cluster, *ALL, waited_ms=3_000)
    findings = cluster.explain()
    assert causes_of(findings) == ["store_member_unreachable"]
    assert "broker-1 waited up to 3.0 s" in said(findings[0])


def test_a_member_that_one_service_alone_misses_is_a_matter_of_its_network(
    cluster: DescribedCluster,
) -> None:
    misses(cluster, "broker-2")
    missed = found(cluster.explain(), "store_member_unreachable")
    assert "does not answer broker-2, but others" in missed.summary
    assert missed.next_step == f"Check the network from broker-2 to {AWAY}."


def test_a_store_that_nobody_reaches_is_one_finding(cluster: DescribedCluster) -> None:
    misses(cluster, *ALL)
    for service in ALL:
        cluster.stores[service] = replace(cluster.stores[service], unreachable_ms=20_000)
    assert causes_of(cluster.explain()) == ["store_unreachable"]


def elects(cluster: DescribedCluster, **counts: int) -> None:
    for broker_id, broker in cluster.brokers.items():
        elections = RecentElections(topic="sea", partition=0, window_ms=120_000, last_ms=3_000)
        counted: dict[str, Any] = dict(counts)
        cluster.brokers[broker_id] = replace(broker, elections=replace(elections, **counted))


def test_controllers_that_change_again_and_again_are_a_finding_of_their_own(
    cluster: DescribedCluster,
) -> None:
    elects(cluster, controllers=4, leaders=9)
    cluster.stores["broker-1"] = StoreHealth(last_latency_ms=2, max_latency_ms=3_000)
    repeated = found(cluster.explain(), "repeated_elections")
    assert repeated.severity == "warning"
    assert "the active controller has changed 4 times" in repeated.summary
    assert "sea/0 has had 9 leader elections" in repeated.summary
    assert repeated.because == ("store_slow",)


def test_a_broker_that_loses_its_registration_again_and_again_is_named(
    cluster: DescribedCluster,
) -> None:
    elects(cluster, registrations_lost=3)
    repeated = found(cluster.explain(), "repeated_elections")
    assert "broker-1, broker-2, broker-3 lost the registration again and again" in repeated.summary
    assert "lease_ttl_seconds" in repeated.next_step


@pytest.mark.parametrize(
    "counts",
    [
        {"controllers": 2, "leaders": 6, "registrations_lost": 2},  # as a rolling restart
        {"controllers": 9, "last_ms": 50_000},  # it has passed
    ],
)
def test_elections_that_are_few_or_over_are_none(
    cluster: DescribedCluster, counts: dict[str, int]
) -> None:
    elects(cluster, **counts)
    assert cluster.explain() == []
