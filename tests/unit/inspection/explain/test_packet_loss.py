"""Brokers whose network loses packets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.explain import Listening
from tidelog.inspection.resource_pressures import BrokerPressure
from tidelog.inspection.state_reports import HeardBroker
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    for name in ("sea/0", "bay/0"):
        described.partition(name)
    return described


def lossy(
    cluster: DescribedCluster, broker_id: int, used: int, limit: int = 1_000, detail: str = ""
) -> None:
    cluster.pressures.append(
        BrokerPressure(broker_id, "network", used, limit, NOW_MS - 8_000, detail)
    )


def test_a_broker_that_loses_packets_is_found_with_its_peers(cluster: DescribedCluster) -> None:
    lossy(cluster, 2, 310, 1_200, "200 to 127.0.0.1:7503, 110 to 10.0.0.9")
    [lost] = cluster.explain()
    assert (lost.cause, lost.severity, lost.broker) == ("packets_lost", "warning", 2)
    assert lost.summary == (
        "broker 2 loses packets: within about 10 s its connections sent 310 of 1,200 TCP segments "
        "again (200 to 127.0.0.1:7503, 110 to 10.0.0.9, which is broker 3)"
    )
    assert "since 2023-11-14T22:13:12Z (8.0 s)" in text_of(lost)
    assert "ping -c 100" in lost.next_step
    assert "the machine of broker 2" in lost.next_step


def test_the_hosts_of_brokers_are_peers_too(cluster: DescribedCluster) -> None:
    for broker_id, host in ((1, "10.0.0.1"), (2, "10.0.0.2"), (3, "[fd00::3]")):
        known = cluster.registered[broker_id]
        cluster.registered[broker_id] = replace(known, address=f"{host}:7500")
    lossy(cluster, 2, 300, detail="200 to 10.0.0.1, 80 to fd00::3, 20 to 10.0.0.11")
    [lost] = cluster.explain()
    assert "which are brokers 1, 3)" in lost.summary


def test_one_finding_names_the_broker_whose_connections_lose_most(
    cluster: DescribedCluster,
) -> None:
    """What arrives at broker 3 is lost, so that the others have to send again."""
    lossy(cluster, 1, 400, 4_000, "350 to 127.0.0.1:7503, 50 to 10.0.0.9")
    lossy(cluster, 3, 300, 1_000, "280 to 10.0.0.9, 20 to 127.0.0.1")
    lossy(cluster, 2, 90, 1_000, "60 to 127.0.0.1, 30 to 127.0.0.1:7503")
    [lost] = cluster.explain()
    assert lost.broker == 3
    assert lost.summary.startswith("broker 3 loses packets")
    assert lost.summary.endswith("; brokers 1, 2 as well")
    assert lost.evidence[0].startswith("broker-3 reports: packets are lost")
    assert "broker-1 reports: packets are lost" in text_of(lost)


def test_a_broker_that_loses_only_what_arrives_is_named_by_the_others(
    cluster: DescribedCluster,
) -> None:
    lossy(cluster, 1, 100, detail="90 to 127.0.0.1:7503, 10 to 10.0.0.9")
    lossy(cluster, 2, 80, detail="80 to 127.0.0.1:7503")
    [lost] = cluster.explain()
    assert lost.broker == 3
    assert lost.summary == (
        "broker 3 loses packets: within about 10 s brokers 1, 2 sent 170 TCP segments to it again"
    )
    assert lost.evidence[0].startswith("broker-1 reports: packets are lost")
    assert "the machine of broker 3" in lost.next_step


def test_slow_followers_of_a_lossy_leader_are_not_blamed(cluster: DescribedCluster) -> None:
    lossy(cluster, 2, 300)
    cluster.partition("cape/0", (2, 1), isr=(2,))
    cluster.seen("cape/0", 1, lag_records=500)
    findings = cluster.explain()
    assert sorted(causes_of(findings)) == ["packets_lost", "under_min_isr"]
    assert found(findings, "under_min_isr").because == ("packets_lost of broker 2",)
    lost = found(findings, "packets_lost")
    assert lost.broker == 2
    assert "1 partition with replicas out of the ISR" in lost.summary


def test_a_lossy_follower_is_slow_for_that_reason(cluster: DescribedCluster) -> None:
    lossy(cluster, 2, 300)
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, lag_records=500)
    [lost] = cluster.explain()
    assert (lost.cause, lost.broker) == ("packets_lost", 2)
    assert "out of the ISR of 1 partition" in lost.summary


def test_late_fetches_over_a_lossy_link_are_no_cut(cluster: DescribedCluster) -> None:
    """The broker answers the controller, and its fetches arrive late."""
    lossy(cluster, 2, 300)
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, last_fetch_ms=1_800, lag_records=4, log_end_offset=96)
    assert causes_of(cluster.explain()) == ["packets_lost"]


def test_a_link_that_lets_nothing_pass_is_cut() -> None:
    cluster = DescribedCluster()
    lossy(cluster, 2, 300)
    cluster.partition("sea/0", (1, 2), isr=(1,))
    cluster.partition("bay/0", (1, 3))
    cluster.partition("cape/0", (3, 2))
    cluster.seen("sea/0", 2, last_fetch_ms=9_000, lag_records=4, log_end_offset=96)
    cluster.waits_for_leader("sea/0", 2, last_answer_ms=9_000)
    cluster.hears(2, HeardBroker(1, unanswered_ms=9_000))
    findings = cluster.explain()
    cut = [f for f in findings if f.cause in ("broker_cut_off", "replica_cut_off")]
    assert [f.broker for f in cut] == [2]
    assert "out of the ISR of 1 partition" in cut[0].summary


def test_a_late_broker_that_loses_packets_is_not_only_busy(cluster: DescribedCluster) -> None:
    lossy(cluster, 2, 300)
    cluster.silence(2, Listening.BUSY)
    [lost] = cluster.explain()
    assert (lost.cause, lost.broker) == ("packets_lost", 2)


@pytest.mark.parametrize("listening", [Listening.ACCEPTS, Listening.ERRS])
def test_losses_of_a_silent_broker_are_evidence(
    cluster: DescribedCluster, listening: Listening
) -> None:
    """Its report may be older than what keeps it from answering."""
    lossy(cluster, 2, 310, 1_200)
    cluster.silence(2, listening)
    cluster.unheard(2)
    [silent] = cluster.explain()
    assert silent.cause in ("broker_paused", "broker_unreachable")
    assert "its connections sent 310 of 1,200 TCP segments again" in text_of(silent)


def test_a_dead_broker_loses_no_packets(cluster: DescribedCluster) -> None:
    lossy(cluster, 2, 310)
    cluster.kill(2)
    assert causes_of(cluster.explain()) == ["replica_dead"]


def test_lost_packets_concern_the_partitions_of_the_broker(cluster: DescribedCluster) -> None:
    cluster.partition("cape/0", (3, 1))
    lossy(cluster, 2, 300)
    assert causes_of(cluster.explain(broker=2)) == ["packets_lost"]
    assert found(cluster.explain(topic="sea"), "packets_lost").broker == 2
    assert cluster.explain(topic="cape") == []
    assert cluster.explain(broker=3) == []
