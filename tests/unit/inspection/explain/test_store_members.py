"""An isolated store member, and repeated elections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.inspection.explain.store_members import MEMBER_LOST_ALONE_MS, MEMBER_LOST_MIN_MS
from tidelog.inspection.state_reports import (
    WITHOUT_MAJORITY,
    RecentElections,
    StoreHealth,
    StoreMember,
)
from unit.inspection.explain.described import DescribedCluster, causes_of, found, text_of

HERE, AWAY = "10.0.0.1:2379", "10.0.0.2:2379"
ALL = ("broker-1", "broker-2", "broker-3", "controller-1")


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def misses(
    cluster: DescribedCluster,
    *services: str,
    waited_ms: int = 5,
    for_ms: int = 8_000,
    problem: str = "no connection",
) -> None:
    for service in ALL:
        lost = for_ms if service in services else -1
        members = (StoreMember(HERE), StoreMember(AWAY, lost, problem if lost > 0 else ""))
        waited = waited_ms if service in services else 5
        cluster.stores[service] = StoreHealth(
            last_latency_ms=2, max_latency_ms=waited, max_latency_ago_ms=7_000, members=members
        )


def test_an_unreachable_member_is_named_instead_of_the_network(
    cluster: DescribedCluster,
) -> None:
    misses(cluster, *ALL)
    findings = cluster.explain()
    assert causes_of(findings) == ["store_member_unreachable"]
    assert findings[0].severity == "warning"
    assert f"member {AWAY} of the metadata store is down or cut off" in findings[0].summary
    assert "broker-2 has received no answer from it for 8.0 s" in text_of(findings[0])
    assert HERE not in text_of(findings[0])


def test_slow_answers_after_one_failure_of_a_lost_member_follow_from_it(
    cluster: DescribedCluster,
) -> None:
    """The services lose the member only after another attempt."""
    misses(cluster, *ALL, waited_ms=3_000)
    once = (StoreMember(HERE), StoreMember(AWAY, problem="no answer"))
    cluster.stores["broker-2"] = replace(cluster.stores["broker-2"], members=once)
    assert causes_of(cluster.explain()) == ["store_member_unreachable"]
    never = (StoreMember(HERE), StoreMember(AWAY))
    cluster.stores["broker-2"] = replace(cluster.stores["broker-2"], members=never)
    assert "store_slow" in causes_of(cluster.explain())


def test_slow_answers_of_services_that_lost_a_member_follow_from_it(
    cluster: DescribedCluster,
) -> None:
    misses(cluster, *ALL, waited_ms=3_000)
    findings = cluster.explain()
    assert causes_of(findings) == ["store_member_unreachable"]
    assert "broker-1 waited up to 3.0 s" in text_of(findings[0])


def test_a_member_unreachable_for_one_service_is_a_fault_of_its_network(
    cluster: DescribedCluster,
) -> None:
    misses(cluster, "broker-2")
    missed = found(cluster.explain(), "store_member_unreachable")
    assert "does not answer broker-2, but others" in missed.summary
    assert missed.next_step == f"Check the network from broker-2 to {AWAY}."


@pytest.mark.parametrize(
    ("services", "for_ms", "is_found"),
    [
        (("broker-2",), MEMBER_LOST_ALONE_MS - 1, False),
        (("broker-2",), MEMBER_LOST_ALONE_MS, True),
        (("broker-1", "broker-2"), MEMBER_LOST_MIN_MS - 1, False),
        (("broker-1", "broker-2"), MEMBER_LOST_MIN_MS, True),
    ],
)
def test_one_missing_answer_for_one_service_is_no_finding(
    cluster: DescribedCluster, services: tuple[str, ...], for_ms: int, is_found: bool
) -> None:
    misses(cluster, *services, for_ms=for_ms)
    assert causes_of(cluster.explain()) == (["store_member_unreachable"] if is_found else [])


@pytest.mark.parametrize(("for_ms", "is_reported"), [(8_000, False), (12_000, True)])
def test_members_during_a_leader_election_are_not_cut_off(
    cluster: DescribedCluster, for_ms: int, is_reported: bool
) -> None:
    misses(cluster, *ALL, for_ms=for_ms, problem="etcd at x did not: etcdserver: no leader")
    assert causes_of(cluster.explain()) == ["store_member_unreachable"] * is_reported


@pytest.mark.parametrize(
    "problem", ["etcd at x did not: etcdserver: no leader", f"{HERE} {WITHOUT_MAJORITY}"]
)
def test_a_member_that_lost_the_others_is_not_called_dead(
    cluster: DescribedCluster, problem: str
) -> None:
    for service in ALL:
        members = (StoreMember(HERE, 12_000, problem), StoreMember(AWAY, 15_000, "no connection"))
        cluster.stores[service] = StoreHealth(last_latency_ms=2, members=members)
    alone, dead = (f for f in cluster.explain() if f.cause == "store_member_unreachable")
    assert alone.summary == (
        f"member {HERE} of the metadata store runs and has no leader: it has lost the majority of "
        "the members"
    )
    assert "Check the etcd processes of the other members" in alone.next_step
    assert dead.summary == f"member {AWAY} of the metadata store is down or cut off"


def test_services_that_may_not_have_called_a_member_since_do_not_prove_that_it_answers(
    cluster: DescribedCluster,
) -> None:
    misses(cluster, "broker-2", for_ms=5_000)
    missed = found(cluster.explain(), "store_member_unreachable")
    assert "is down or cut off" in missed.summary
    assert "broker-1, broker-3, controller-1 may not have used it since" in text_of(missed)


def test_an_unreachable_store_is_one_finding(cluster: DescribedCluster) -> None:
    misses(cluster, *ALL)
    for service in ALL:
        cluster.stores[service] = replace(cluster.stores[service], unreachable_ms=20_000)
    findings = cluster.explain()
    assert causes_of(findings) == ["store_unreachable"]
    assert f'broker-1 reports about member {AWAY}: "no connection"' in text_of(findings[0])
    assert f'broker-1 reports about member {HERE}: "no answer"' in text_of(findings[0])


@pytest.mark.parametrize(
    ("lost_ms", "asked_ms", "broker"),
    [(3_000, 1_900, 2), (3_000, 2_100, -1), (3_000, 4_000, -1), (16_000, 17_000, 2)],
)
def test_a_store_that_answered_one_service_since_is_not_lost_for_all(
    cluster: DescribedCluster, lost_ms: int, asked_ms: int, broker: int
) -> None:
    cluster.lose_store("broker-2", for_ms=lost_ms)
    cluster.stores["controller-1"] = StoreHealth(-1, "", 2, 5, 1_000, (asked_ms,))
    assert found(cluster.explain(), "store_unreachable").broker == broker


@pytest.mark.parametrize(("lost_ms", "broker"), [(4_900, -1), (5_000, 2)])
def test_a_store_whose_members_all_answer_another_service_is_not_lost_for_all(
    cluster: DescribedCluster, lost_ms: int, broker: int
) -> None:
    misses(cluster)
    cluster.lose_store("broker-2", for_ms=lost_ms)
    assert found(cluster.explain(), "store_unreachable").broker == broker


def elects(cluster: DescribedCluster, **counts: int) -> None:
    for broker_id, broker in cluster.brokers.items():
        elections = RecentElections(topic="sea", partition=0, window_ms=120_000, last_ms=3_000)
        counted: dict[str, Any] = dict(counts)
        cluster.brokers[broker_id] = replace(broker, elections=replace(elections, **counted))


def test_repeated_controller_changes_are_a_separate_finding(
    cluster: DescribedCluster,
) -> None:
    elects(cluster, controllers=4, leaders=9)
    cluster.stores["broker-1"] = StoreHealth(last_latency_ms=2, max_latency_ms=3_000)
    repeated = found(cluster.explain(), "repeated_elections")
    assert repeated.severity == "warning"
    assert "the active controller has changed 4 times" in repeated.summary
    assert "sea/0 has had 9 leader elections" in repeated.summary
    assert repeated.because == ("store_slow",)


def test_a_broker_that_repeatedly_loses_its_registration_is_named(
    cluster: DescribedCluster,
) -> None:
    elects(cluster, registrations_lost=3)
    repeated = found(cluster.explain(), "repeated_elections")
    assert "broker-1, broker-2, broker-3 lost the registration repeatedly" in repeated.summary
    assert "lease_ttl_seconds" in repeated.next_step


@pytest.mark.parametrize(
    "counts",
    [
        {"controllers": 2, "leaders": 6, "registrations_lost": 2},  # like a rolling restart
        {"controllers": 9, "last_ms": 50_000},  # in the past
    ],
)
def test_few_or_past_elections_are_no_finding(
    cluster: DescribedCluster, counts: dict[str, int]
) -> None:
    elects(cluster, **counts)
    assert cluster.explain() == []
