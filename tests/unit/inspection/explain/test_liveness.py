"""Whether an unresponsive broker is dead, paused, or only unreachable."""

from __future__ import annotations

import pytest

from tidelog.inspection.controller_reports import BrokerConnection
from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import HeardBroker
from unit.inspection.explain.described import DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


def test_a_leader_that_answers_its_followers_is_neither_paused_nor_departed(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    cluster.silence(2, Listening.ACCEPTS)
    findings = cluster.explain()
    assert causes_of(findings) == ["broker_unreachable"]
    assert "it answered a follower 10 ms ago" in text_of(findings[0])
    assert "broker 2 cannot be reached from here, and is alive" in findings[0].summary


def test_a_follower_whose_fetches_arrive_is_not_paused(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0")
    cluster.silence(2, Listening.ACCEPTS)
    assert causes_of(cluster.explain()) == ["broker_unreachable"]


@pytest.mark.parametrize(
    ("heard", "evidence"),
    [
        (HeardBroker(2, last_fetch_ms=400), "a leader received a fetch from it 400 ms ago"),
        (HeardBroker(2, last_answer_ms=500), "it answered a follower 500 ms ago"),
    ],
)
def test_a_broker_heard_over_healthy_partitions_is_not_paused(
    cluster: DescribedCluster, heard: HeardBroker, evidence: str
) -> None:
    cluster.hears(1, heard)
    cluster.silence(2, Listening.ACCEPTS)
    findings = cluster.explain()
    assert causes_of(findings) == ["broker_unreachable"]
    assert evidence in text_of(findings[0])


def test_messages_of_another_broker_are_no_sign_of_life(cluster: DescribedCluster) -> None:
    cluster.hears(1, HeardBroker(3, last_fetch_ms=400))
    cluster.hears(1, HeardBroker(2, last_fetch_ms=-1, last_answer_ms=2_001))
    cluster.silence(2, Listening.ACCEPTS)
    assert causes_of(cluster.explain()) == ["broker_paused"]


def test_a_silent_broker_that_accepts_connections_is_paused(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    for broker_id in (1, 3):
        cluster.waits_for_leader("sea/0", broker_id, last_answer_ms=2_500)
    cluster.silence(2, Listening.ACCEPTS)
    assert found(cluster.explain(), "no_leader").because == ("broker_paused of broker 2",)


def test_without_the_store_an_unresponsive_registered_broker_may_be_alive(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.seen("sea/0", 2, last_fetch_ms=60_000)
    cluster.silence(2, Listening.SILENT)
    cluster.lose_store("broker-1", "broker-3", "controller-1")
    findings = cluster.explain()
    assert "replica_dead" not in causes_of(findings)
    unreachable = found(findings, "broker_unreachable")
    assert "no service that answers reports whether it is alive" in unreachable.summary


def test_a_busy_broker_is_the_reason_only_where_its_leader_gives_none(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.silence(2, Listening.BUSY)
    [busy] = cluster.explain("sea", 0)
    assert (busy.cause, busy.severity) == ("broker_busy", "warning")
    assert "127.0.0.1:7502 answers health checks" in text_of(busy)
    cluster.seen("sea/0", 2, log_end_offset=40, lag_records=60)
    assert causes_of(cluster.explain("sea", 0)) == ["replica_slow"]


def test_a_busy_leader_is_not_reported_as_missing(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    cluster.silence(2, Listening.BUSY)
    cluster.unheard(2)
    assert causes_of(cluster.explain()) == ["broker_busy"]
    [late] = cluster.explain("sea", 0)
    assert (late.cause, late.severity, late.partitions) == ("broker_busy", "warning", ("sea/0",))
    assert "requests for 1 partition that it leads are late" in late.summary


def test_a_broker_whose_port_refuses_connections_is_dead_although_peers_heard_it_before(
    cluster: DescribedCluster,
) -> None:
    """A removal of its registration may be delayed until its lease ends."""
    cluster.partition("sea/0", (2, 1, 3))
    for broker_id in (1, 3):
        cluster.waits_for_leader("sea/0", broker_id, last_answer_ms=1_200)
    cluster.silence(2, Listening.REFUSES)
    assert found(cluster.explain("sea", 0), "no_leader").because == ("replica_dead of broker 2",)


@pytest.mark.parametrize("age_ms", [100, 1_200])
def test_a_firewall_that_refuses_connections_for_a_broker_makes_it_unreachable_from_here(
    cluster: DescribedCluster, age_ms: int
) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    for broker_id in (1, 3):
        cluster.waits_for_leader("sea/0", broker_id, last_answer_ms=age_ms)
    cluster.silence(2, Listening.REFUSES)
    if age_ms > 500:
        cluster.connections.append(BrokerConnection(2, 12))
    assert causes_of(cluster.explain()) == ["broker_unreachable"]
