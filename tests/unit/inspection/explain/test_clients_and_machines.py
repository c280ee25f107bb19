"""Clients whose requests are rejected, and machines that were rebooted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.caller_limits import (
    GATEWAY_TOTAL_LIMITS,
    METRICS_CONNECTIONS_PER_CLIENT,
    LimitedClient,
)
from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.inspection.resource_pressures import BrokerPressure
from tidelog.inspection.state_reports import RejectedRequests
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    described.partition("bay/0")
    return described


def change(cluster: DescribedCluster, broker_id: int, **differs: Any) -> None:
    cluster.brokers[broker_id] = replace(cluster.brokers[broker_id], **differs)


def rejects(cluster: DescribedCluster, broker_id: int, count: int, last_ms: int = 900) -> None:
    rejected = RejectedRequests("sea", "BATCH_TOO_LARGE", count, last_ms, "a batch has 9 bytes")
    change(cluster, broker_id, rejected_requests=(rejected,))


def test_repeatedly_rejected_large_records_are_one_finding_of_their_topic(
    cluster: DescribedCluster,
) -> None:
    rejects(cluster, 1, 4)
    rejects(cluster, 2, 3)
    findings = cluster.explain()
    assert causes_of(findings) == ["requests_rejected"]
    rejected = findings[0]
    assert (rejected.severity, rejected.topic, rejected.broker) == ("warning", "sea", -1)
    assert (
        "7 requests within the last minute by broker-1, broker-2, because of BATCH_TOO_LARGE"
        in (rejected.summary)
    )
    assert (
        'broker-1 has rejected 4 produce requests, the last 900 ms ago: "a batch has 9'
        in text_of(rejected)
    )
    assert "tidelog topics alter-config sea --set max_batch_bytes=BYTES" in rejected.next_step
    assert cluster.explain(topic="bay") == []
    assert causes_of(cluster.explain(topic="sea")) == ["requests_rejected"]


@pytest.mark.parametrize(("count", "last_ms"), [(2, 900), (50, 31_000)])
def test_few_or_past_rejections_are_no_finding(
    cluster: DescribedCluster, count: int, last_ms: int
) -> None:
    rejects(cluster, 1, count, last_ms)
    assert cluster.explain() == []


def outruns(cluster: DescribedCluster, count: int, last_ms: int = 40_000) -> None:
    message = "sea/0 has offsets 900 to 950, not 30"
    rejected = RejectedRequests("sea", "OFFSET_OUT_OF_RANGE", count, last_ms, message)
    change(cluster, 1, rejected_requests=(rejected,))


def test_a_topic_whose_retention_outruns_its_consumers_is_named(cluster: DescribedCluster) -> None:
    outruns(cluster, 4)
    [outrun] = cluster.explain()
    assert (outrun.cause, outrun.severity, outrun.topic) == ("requests_rejected", "warning", "sea")
    assert outrun.summary.startswith("retention deletes records of topic 'sea' before consumers")
    assert "4 times in one partition within the last five minutes" in outrun.summary
    assert 'the last 40.0 s ago: "sea/0 has offsets 900 to 950, not 30"' in text_of(outrun)
    assert "tidelog topics alter-config sea --set retention_ms=MS" in outrun.next_step


@pytest.mark.parametrize(("count", "last_ms"), [(2, 900), (9, 151_000)])
def test_a_consumer_reset_once_or_twice_is_no_finding(
    cluster: DescribedCluster, count: int, last_ms: int
) -> None:
    outruns(cluster, count, last_ms)
    assert cluster.explain() == []


def test_a_client_at_a_limit_is_one_finding_across_brokers(
    cluster: DescribedCluster,
) -> None:
    for broker_id, count in ((1, 500), (2, 32)):
        cluster.limited_clients[broker_id] = [
            LimitedClient("10.0.0.7", "max_requests_per_client", 2_048, count, 900)
        ]
    (finding,) = cluster.explain()
    assert (finding.cause, finding.severity, finding.broker) == ("client_limited", "warning", -1)
    assert finding.summary == (
        "client 10.0.0.7 has reached max_requests_per_client (2,048) of broker-1, broker-2: "
        "532 requests rejected, the last 900 ms ago"
    )
    assert "broker-2 has rejected 32 requests of client 10.0.0.7 by max_requests" in text_of(
        finding
    )
    assert "raise max_requests_per_client of broker-1, broker-2" in finding.next_step
    (of_one,) = cluster.explain(broker=2)
    assert (of_one.broker, "532" in of_one.summary) == (2, False)
    assert cluster.explain(broker=3) == []
    assert cluster.explain(topic="sea") == []


def test_the_shared_limit_of_all_clients_is_one_finding_with_their_addresses(
    cluster: DescribedCluster,
) -> None:
    cluster.limited_clients[1] = [
        LimitedClient(address, "max_client_requests", 3_584, 5, 100)
        for address in ("10.0.0.7", "10.0.0.8")
    ]
    (finding,) = cluster.explain()
    assert finding.summary.startswith(
        "all clients together have reached max_client_requests (3,584) of broker-1: 10 requests"
    )
    assert "client 10.0.0.7" in text_of(finding)
    assert "client 10.0.0.8" in text_of(finding)


def gateway(*limited: LimitedClient, last_heard_ms: int = 500) -> AnnouncedGateway:
    return AnnouncedGateway(
        "gate-1:7600", "gate-1", 7, "0.1.0", NOW_MS - 60_000, last_heard_ms, limited_clients=limited
    )


def test_a_client_at_a_gateway_limit_is_found_like_one_at_a_broker_limit(
    cluster: DescribedCluster,
) -> None:
    client = LimitedClient("10.0.0.7", "max_requests_per_client", 128, 5, 900)
    cluster.gateways.append(gateway(client))
    (finding,) = cluster.explain()
    assert (finding.cause, finding.severity, finding.broker) == ("client_limited", "warning", -1)
    assert finding.summary == (
        "client 10.0.0.7 has reached max_requests_per_client (128) of the gateway at gate-1:7600 "
        "on gate-1: 5 requests rejected, the last 900 ms ago"
    )
    assert "raise max_requests_per_client of the gateway at gate-1:7600" in finding.next_step
    assert cluster.explain(broker=2) == []
    cluster.gateways[:] = [gateway(client, last_heard_ms=20_000)]
    assert "client_limited" not in causes_of(cluster.explain())


@pytest.mark.parametrize("limit", GATEWAY_TOTAL_LIMITS)
def test_each_shared_gateway_limit_is_one_finding_with_a_next_step(
    cluster: DescribedCluster, limit: str
) -> None:
    cluster.gateways.append(
        gateway(*(LimitedClient(f"10.0.0.{n}", limit, 64, 5, 900) for n in (7, 8)))
    )
    (finding,) = cluster.explain()
    assert finding.summary.startswith(
        f"all clients together have reached {limit} (64) of the gateway"
    )
    assert "client 10.0.0.8" in text_of(finding)
    assert "{" not in finding.next_step
    assert "for answers before it sends more" not in finding.next_step


def test_a_client_with_too_many_connections_to_a_metrics_port_is_found_with_the_port(
    cluster: DescribedCluster,
) -> None:
    cluster.limited_clients[1] = [
        LimitedClient("10.0.0.7", METRICS_CONNECTIONS_PER_CLIENT, 8, 392, 900)
    ]
    (finding,) = cluster.explain()
    assert (finding.cause, finding.broker) == ("client_limited", 1)
    assert finding.summary == (
        "client 10.0.0.7 has reached metrics_connections_per_client (8) of broker-1: "
        "392 metrics-port connections rejected, the last 900 ms ago"
    )
    assert "connects from that address to the metrics port of broker-1" in finding.next_step
    assert "raise" not in finding.next_step


def test_connections_with_a_separate_finding_are_not_reported_twice(
    cluster: DescribedCluster,
) -> None:
    cluster.limited_clients[1] = [
        LimitedClient(address, "max_connections_per_client", 1_024, 5, 100)
        for address in ("10.0.0.7", "10.0.0.8")
    ]
    assert causes_of(cluster.explain()) == ["client_limited", "client_limited"]
    cluster.pressures = [BrokerPressure(1, "connections", 1_024, 1_024, NOW_MS, "from 10.0.0.7")]
    findings = cluster.explain()
    many, other = found(findings, "many_connections"), found(findings, "client_limited")
    assert len(findings) == 2
    assert (
        "broker-1 has rejected 5 requests or idle connections of client 10.0.0.7 by "
        "max_connections_per_client=1024, the last 100 ms ago"
    ) in many.evidence
    assert "10.0.0.8" not in text_of(many)
    assert "client 10.0.0.8 has reached" in other.summary


def test_a_broker_that_the_client_has_left_is_not_named_with_the_limit(
    cluster: DescribedCluster,
) -> None:
    for broker_id, last_ms in ((1, 900), (2, 31_000)):
        cluster.limited_clients[broker_id] = [
            LimitedClient("10.0.0.7", "max_connections_per_client", 48, 30, last_ms)
        ]
    (finding,) = cluster.explain()
    assert finding.broker == 1
    assert "broker-2" not in text_of(finding)
    assert cluster.explain(broker=2) == []


def reboot(cluster: DescribedCluster, *broker_ids: int, ago_ms: int = 20_000) -> None:
    for broker_id in broker_ids:
        change(cluster, broker_id, previous_end="rebooted", boot_id="b-2")
        cluster.started_at_ms[broker_id] = NOW_MS - ago_ms


def test_all_rebooted_machines_are_one_note(cluster: DescribedCluster) -> None:
    reboot(cluster, 1, 2, 3)
    findings = cluster.explain()
    assert causes_of(findings) == ["machine_rebooted"]
    assert findings[0].severity == "info"
    assert "all machines: the machines of brokers 1, 2, 3 were rebooted" in findings[0].summary
    assert "broker-2 was started at 2023-11-14T22:13:00Z (20.0 s ago) in boot b-2" in text_of(
        findings[0]
    )


def test_unclean_elections_after_a_reboot_follow_from_it(cluster: DescribedCluster) -> None:
    reboot(cluster, 1, 2)
    cluster.partition("sea/0", unclean_leader_epoch=5, unclean_elected_at_ms=NOW_MS - 15_000)
    findings = cluster.explain()
    assert causes_of(findings) == ["machine_rebooted", "unclean_election"]
    assert findings[0].severity == "warning"
    assert "sea/0" in text_of(findings[0])
    assert findings[1].because == ("machine_rebooted",)
    # In the scope of this partition too, and not in that of another.
    assert causes_of(cluster.explain("sea", 0)) == ["machine_rebooted", "unclean_election"]
    assert cluster.explain("bay") == []


def test_an_unclean_election_before_the_reboot_does_not_follow_from_it(
    cluster: DescribedCluster,
) -> None:
    reboot(cluster, 1)
    cluster.partition("sea/0", unclean_leader_epoch=5, unclean_elected_at_ms=NOW_MS - 50_000)
    assert found(cluster.explain(), "unclean_election").because == ()


def test_a_partition_that_needs_consent_after_a_reboot_names_the_reboot(
    cluster: DescribedCluster,
) -> None:
    reboot(cluster, 2, 3)
    cluster.partition("sea/0", leader=-1, isr=(2, 3), recovery="manual")
    missing = found(cluster.explain(), "no_leader")
    assert missing.because == ("machine_rebooted",)


def test_an_old_reboot_is_no_finding(cluster: DescribedCluster) -> None:
    reboot(cluster, 1, ago_ms=3_700_000)
    assert cluster.explain() == []


def test_a_crash_without_a_reboot_is_not_a_reboot(
    cluster: DescribedCluster,
) -> None:
    change(cluster, 1, previous_end="crashed", boot_id="b-2")
    cluster.started_at_ms[1] = NOW_MS - 1_000
    assert cluster.explain() == []
