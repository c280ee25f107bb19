"""Brokers that are short of open files, memory or CPU."""

from __future__ import annotations

import pytest

from tidelog.inspection.explain import Listening
from tidelog.inspection.resource_pressures import BrokerPressure
from tidelog.inspection.state_reports import RejectedStart
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    described.partition("bay/0", (1, 3))
    return described


def short(
    cluster: DescribedCluster, resource: str, used: int, limit: int, detail: str = ""
) -> None:
    cluster.pressures.append(BrokerPressure(2, resource, used, limit, NOW_MS - 8_000, detail))


def test_high_file_use_is_a_warning_with_the_limit_and_how_to_raise_it(
    cluster: DescribedCluster,
) -> None:
    short(cluster, "open_files", 850, 1_024, "700 of them are connections")
    findings = cluster.explain()
    assert causes_of(findings) == ["open_files"]
    near = findings[0]
    assert (near.severity, near.broker) == ("warning", 2)
    assert near.summary == (
        "broker 2 is near its limit of open files: 850 of 1,024 are open (700 of them are "
        "connections)"
    )
    assert "LimitNOFILE=" in near.next_step
    assert "since 2023-11-14T22:13:12Z (8.0 s)" in text_of(near)


@pytest.mark.parametrize("listening", [Listening.ACCEPTS, Listening.SILENT])
def test_a_broker_without_files_is_named_instead_of_the_network_or_a_pause(
    cluster: DescribedCluster, listening: Listening
) -> None:
    short(cluster, "open_files", 1_020, 1_024)
    cluster.partition("sea/0", isr=(1, 3))
    cluster.silence(2, listening)
    cluster.unheard(2)
    findings = cluster.explain()
    assert causes_of(findings) == ["open_files"]
    assert "broker 2 has reached its limit of open files" in findings[0].summary
    assert "out of the ISR of 1 partition" in findings[0].summary
    assert "network" not in text_of(findings[0])


def test_a_follower_that_cannot_connect_to_a_leader_without_files_is_no_network_fault(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("cape/0", (2, 1), isr=(2,))
    cluster.seen("cape/0", 1, last_fetch_ms=9_000, lag_records=4, log_end_offset=96)
    short(cluster, "open_files", 1_024, 1_024)
    findings = cluster.explain()
    assert "replica_cut_off" not in causes_of(findings)
    assert found(findings, "open_files").severity == "critical"


def test_memory_near_its_limit_is_a_warning(cluster: DescribedCluster) -> None:
    short(cluster, "memory", 95, 100)
    near = found(cluster.explain(), "memory_short")
    assert near.summary == "broker 2 is near its memory limit: it uses 95 % of 100 B"


def test_a_busy_broker_without_cpu_is_starved(cluster: DescribedCluster) -> None:
    short(cluster, "cpu", 9_000, 10_000, "its control group is throttled (cpu.max)")
    cluster.silence(2, Listening.BUSY)
    findings = cluster.explain()
    assert causes_of(findings) == ["cpu_starved"]
    assert "within 10.0 s it waited 9.0 s for it" in findings[0].summary
    assert "cpu.max" in text_of(findings[0])


def test_a_dead_process_has_no_shortage(cluster: DescribedCluster) -> None:
    short(cluster, "open_files", 99, 100)
    cluster.kill(2)
    assert causes_of(cluster.explain()) == ["replica_dead"]


def test_a_process_at_its_memory_limit_when_it_died_is_reported_so(
    cluster: DescribedCluster,
) -> None:
    short(cluster, "memory", 99, 100)
    cluster.kill(2)
    findings = cluster.explain()
    assert causes_of(findings) == ["replica_dead"]
    assert "it used 99 % of its memory limit when it ended" in findings[0].summary
    assert findings[0].next_step.startswith("Raise the memory limit of broker 2")


def test_memory_exhaustion_is_reported_despite_another_last_message(
    cluster: DescribedCluster,
) -> None:
    short(cluster, "memory", 99, 100)
    cluster.kill(2)
    fault = "task retention failed: RuntimeError: can't start new thread"
    cluster.rejected_starts.append(RejectedStart(2, NOW_MS, "fault", fault))
    [finding] = cluster.explain()
    assert f"has crashed ({fault}); it used 99 % of its memory limit" in finding.summary


def test_a_shortage_concerns_its_broker(cluster: DescribedCluster) -> None:
    short(cluster, "memory", 99, 100)
    assert causes_of(cluster.explain(broker=2)) == ["memory_short"]
    assert cluster.explain(broker=3) == []
    assert cluster.explain(topic="bay") == []


def test_resources_of_a_later_release_are_ignored(cluster: DescribedCluster) -> None:
    short(cluster, "ports", 9, 10)
    assert cluster.explain() == []


@pytest.mark.parametrize("listening", [Listening.ACCEPTS, Listening.BUSY])
def test_many_connections_of_one_client_are_named_and_not_the_network(
    cluster: DescribedCluster, listening: Listening
) -> None:
    short(cluster, "connections", 5_000, 1_024, "from 10.0.0.7")
    cluster.silence(2, listening)
    cluster.unheard(2)
    findings = cluster.explain()
    assert causes_of(findings) == ["many_connections"]
    assert (
        "broker 2 holds 5,000 connections of one client (from 10.0.0.7; "
        "max_connections_per_client is 1,024)"
    ) in findings[0].summary
    assert "max_connections_per_client of broker 2" in findings[0].next_step
    assert "network" not in text_of(findings[0])


def test_a_slow_disk_is_a_warning_before_it_affects_anything(
    cluster: DescribedCluster,
) -> None:
    short(cluster, "disk", 1_500, 1_000)
    [slow] = cluster.explain()
    assert (slow.cause, slow.severity, slow.broker) == ("disk_slow", "warning", 2)
    assert slow.summary == "the disk of broker 2 is slow: a sync takes 1.5 s"
    assert "1.0 s or longer since 2023-11-14T22:13:12Z (8.0 s), of late a sync 1.5 s" in text_of(
        slow
    )
    assert "iostat" in slow.next_step


def test_an_overdue_scrub_is_a_warning_that_names_what_bounds_it(
    cluster: DescribedCluster,
) -> None:
    day_ms = 86_400_000
    short(cluster, "scrub", 30 * day_ms, 14 * day_ms, "scrub_cpu_percent bounds its CPU time")
    [late] = cluster.explain()
    assert (late.cause, late.severity, late.broker) == ("scrub_overdue", "warning", 2)
    assert late.summary == (
        "the scrub of broker 2 is overdue: its pass takes 720 h 0 min, and scrub_period_ms is "
        "336 h 0 min; scrub_cpu_percent bounds its CPU time"
    )
    assert "the pass of its scrub has run since 2023-" in text_of(late)
    assert "Raise the setting of broker 2 that is named" in late.next_step


def test_a_follower_whose_disk_is_slow_lags_for_that_reason(cluster: DescribedCluster) -> None:
    short(cluster, "disk", 1_500, 1_000)
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, lag_records=500)
    findings = cluster.explain()
    assert causes_of(findings) == ["disk_slow"]
    assert "out of the ISR of 1 partition" in findings[0].summary


def test_followers_of_a_leader_whose_disk_is_slow_are_not_blamed(
    cluster: DescribedCluster,
) -> None:
    short(cluster, "disk", 1_500, 1_000)
    cluster.partition("cape/0", (2, 1), isr=(2,))
    cluster.seen("cape/0", 1, lag_records=500)
    findings = cluster.explain()
    assert "replica_slow" not in causes_of(findings)
    assert found(findings, "disk_slow").broker == 2


def test_a_leader_with_a_stalled_disk_holds_its_high_watermark_for_that_reason(
    cluster: DescribedCluster,
) -> None:
    short(cluster, "disk", 9_000, 1_000)
    cluster.partition("cape/0", (2, 1))
    cluster.replica("cape/0", 2, synced=True, high_watermark=60, flushed_offset=60)
    cluster.leads("cape/0", hw_stalled_ms=8_000)
    findings = cluster.explain()
    assert found(findings, "hw_stalled").because == ("disk_slow of broker 2",)
    assert "the high watermark does not advance in 1 partition" in findings[0].summary


@pytest.mark.parametrize("listening", [Listening.ACCEPTS, Listening.BUSY, Listening.ERRS])
def test_a_broker_that_waits_for_its_disk_answers_late_for_that_reason(
    cluster: DescribedCluster, listening: Listening
) -> None:
    short(cluster, "disk", 1_500, 1_000, "write")
    cluster.partition("sea/0", isr=(1, 3))
    cluster.silence(2, listening)
    [slow] = cluster.explain()
    assert slow.cause == "disk_slow"
    assert slow.summary.startswith("the disk of broker 2 is slow: a write takes 1.5 s")
    assert "out of the ISR of 1 partition" in slow.summary
    assert "network" not in text_of(slow)


def test_syncs_alone_delay_no_answer(cluster: DescribedCluster) -> None:
    short(cluster, "disk", 1_500, 1_000, "sync")
    cluster.silence(2, Listening.ACCEPTS)
    cluster.unheard(2)
    assert {"broker_paused", "disk_slow"} <= set(causes_of(cluster.explain()))


def test_a_busy_broker_without_a_shortage_may_have_packet_loss(
    cluster: DescribedCluster,
) -> None:
    cluster.silence(2, Listening.BUSY)
    [busy] = cluster.explain()
    step = busy.next_step
    assert busy.cause == "broker_busy"
    assert step.index("network to broker 2") < step.index("`ss -ti`") < step.index("CPU")
