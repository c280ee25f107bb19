"""Partition moves: what a move waits for, and which states are normal during it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.inspection.state_reports import (
    BrokerBacklog,
    BrokerState,
    FollowerState,
    PartitionMoveState,
    RegisteredBroker,
)
from unit.inspection.explain.described import (
    DescribedCluster,
    address,
    at,
    causes_of,
    found,
    text_of,
)


@pytest.fixture
def cluster() -> DescribedCluster:
    cluster = DescribedCluster()
    cluster.brokers[4] = BrokerState(14, "running", has_full_state=True, controller_epoch=4)
    cluster.registered[4] = RegisteredBroker(4, 14, address(4), "running", "", 1, 1)
    return cluster


def moved(cluster: DescribedCluster, *waits_for: int, isr: Any = (1, 2, 3), **move: Any) -> None:
    """Broker 4 replaces broker 3 in "sea/0", so its target is 1, 2, 4."""
    cluster.partition(
        "sea/0",
        (1, 2, 3, 4),
        isr=isr,
        move=PartitionMoveState("grow-1", (1, 2, 3), (1, 2, 4), waits_for=waits_for, **move),
    )


def lacks(cluster: DescribedCluster, records: int) -> None:
    cluster.seen("sea/0", 4, log_end_offset=100 - records, lag_records=records, lag_bytes=9)


def test_a_progressing_move_is_informational(cluster: DescribedCluster) -> None:
    moved(cluster, 4)
    finding = found(cluster.explain(), "move_waits")
    assert finding.severity == "info"
    text = text_of(finding)
    assert "sea/0 is moved from 1, 2, 3 to 1, 2, 4" in text
    assert "broker 4 has every record and is about to be admitted" in text
    assert "operation grow-1" in text


def test_an_added_replica_not_yet_in_sync_is_not_missing_from_the_isr(
    cluster: DescribedCluster,
) -> None:
    moved(cluster, 4)
    assert causes_of(cluster.explain()) == ["move_waits"]


def test_a_removed_replica_out_of_sync_is_missing_until_the_switch(
    cluster: DescribedCluster,
) -> None:
    moved(cluster, 4, isr=(1, 2))
    cluster.kill(3)
    findings = cluster.explain()
    dead = found(findings, "replica_dead")
    assert dead.broker == 3
    assert "out of the ISR of 1 partition" in text_of(dead)


def test_a_move_that_waits_for_a_dead_broker_says_so(cluster: DescribedCluster) -> None:
    moved(cluster, 4)
    cluster.kill(4)
    findings = cluster.explain()
    waits = found(findings, "move_waits")
    assert (waits.severity, waits.broker) == ("warning", 4)
    assert "broker 4 is gone" in text_of(waits)
    assert "tidelog operations cancel grow-1" in waits.next_step
    assert waits.because == ("replica_dead of broker 4",)
    assert "1 move of partitions waiting for it" in text_of(found(findings, "replica_dead"))


def test_a_move_that_waits_for_a_slow_broker_has_its_lag(cluster: DescribedCluster) -> None:
    moved(cluster, 4)
    lacks(cluster, 60)
    findings = cluster.explain()
    assert "broker 4 fetches and does not catch up" in text_of(found(findings, "move_waits"))
    assert "lacks 60 records" in text_of(found(findings, "replica_slow"))


def test_a_throttled_move_names_the_throttle_and_blames_no_broker(
    cluster: DescribedCluster,
) -> None:
    moved(cluster, 4)
    lacks(cluster, 60)
    for broker_id in (1, 4):
        broker = cluster.brokers[broker_id]
        cluster.brokers[broker_id] = replace(broker, move_bytes_per_second=4_096)
    findings = cluster.explain()
    assert causes_of(findings) == ["move_waits"]
    waits = found(findings, "move_waits")
    assert waits.severity == "info"
    assert "copies what it lacks, at no more than 4 KiB/s" in waits.summary
    assert "lacks 60 records" in text_of(waits)
    assert "tidelog throttle set RATE" in waits.next_step


def test_the_throttle_does_not_explain_a_lagging_permanent_replica(
    cluster: DescribedCluster,
) -> None:
    moved(cluster, 2, 3, isr=(1, 4), cancelled=True)
    cluster.brokers[1] = replace(cluster.brokers[1], move_bytes_per_second=4_096)
    cluster.seen("sea/0", 2, log_end_offset=40, lag_records=60)
    assert "broker 2 fetches and does not catch up" in text_of(
        found(cluster.explain(), "cancellation_waits")
    )


def test_a_move_that_waits_for_a_broker_that_is_cut_off_says_so(cluster: DescribedCluster) -> None:
    moved(cluster, 4)
    lacks(cluster, 60)
    cluster.seen("sea/0", 4, last_fetch_ms=9_000)
    assert "cannot fetch from its leader" in text_of(found(cluster.explain(), "move_waits"))


def test_a_move_unknown_to_its_broker_is_reported(cluster: DescribedCluster) -> None:
    moved(cluster, 4)
    cluster.seen("sea/0", 4, last_fetch_ms=-1)
    cluster.replicas = {key: r for key, r in cluster.replicas.items() if key[1] != 4}
    cluster.backlogs.append(BrokerBacklog(4, 14, 1, 9_000, overdue=True))
    assert "has not received its newest state" in text_of(found(cluster.explain(), "move_waits"))


def test_a_replica_rejected_by_its_leader_is_not_about_to_join(
    cluster: DescribedCluster,
) -> None:
    moved(cluster, 4)
    cluster.replica("sea/0", 4, follower=FollowerState(1, 10, "who are you", 9_000, answered=True))
    text = text_of(found(cluster.explain(), "move_waits"))
    assert "broker 1, its leader, rejects the fetches of broker 4" in text
    assert "about to be admitted" not in text


def test_a_replica_that_lacks_only_records_in_flight_is_about_to_join(
    cluster: DescribedCluster,
) -> None:
    moved(cluster, 4)
    cluster.seen("sea/0", 4, log_end_offset=98, lag_records=2, last_caught_up_ms=100)
    text = text_of(found(cluster.explain(), "move_waits"))
    assert "broker 4 had every record a moment ago and is about to be admitted" in text


def test_a_pending_cancellation_names_its_broker_and_the_reason(cluster: DescribedCluster) -> None:
    moved(cluster, 2, 3, isr=(1, 4), cancelled=True)
    cluster.kill(2)
    cluster.kill(3)
    waits = found(cluster.explain(), "cancellation_waits")
    text = text_of(waits)
    assert waits.severity == "warning"
    assert "is cancelled, and it cannot be rolled back yet" in text
    assert "broker 2 is gone; broker 3 is gone" in text
    assert "Repair brokers 2, 3" in text


def test_a_move_without_obstacles_needs_no_explanation(cluster: DescribedCluster) -> None:
    moved(cluster, isr=(1, 2, 3, 4))
    assert cluster.explain() == []


def test_many_moves_with_the_same_obstacle_are_one_finding(cluster: DescribedCluster) -> None:
    moved(cluster, 4)
    first = cluster.keys.copy()
    for name, key in first.items():
        other = replace(key, partition=1)
        cluster.keys[name._replace(partition=1)] = other
    cluster.kill(4)
    waits = found(cluster.explain(), "move_waits")
    assert waits.partition_count == 2
    assert waits.summary.startswith("2 partitions are moved and wait for broker 4")


def test_without_a_controller_brokers_report_moves(cluster: DescribedCluster) -> None:
    moved(cluster, 4)
    cluster.stop_controller()
    assert "move_waits" in causes_of(cluster.explain())


def bounded(
    cluster: DescribedCluster, rate: int, written: int | None, most: int | None = None
) -> None:
    """The leader reports `written` bytes per second; None: an older leader."""
    moved(cluster, 4)
    lacks(cluster, 60)
    for broker_id in (1, 4):
        broker = cluster.brokers[broker_id]
        cluster.brokers[broker_id] = replace(broker, move_bytes_per_second=rate)
    leading = cluster.replicas[at("sea/0"), 1]
    assert leading.leader is not None
    leader = replace(
        leading.leader,
        written_bytes_per_second=written,
        most_written_bytes_per_second=most or written,
    )
    cluster.replicas[at("sea/0"), 1] = replace(leading, leader=leader)


def test_a_throttle_below_the_write_rate_never_ends_and_a_sufficient_rate_is_given(
    cluster: DescribedCluster,
) -> None:
    bounded(cluster, rate=4_096, written=8_000)
    findings = cluster.explain()
    assert causes_of(findings) == ["move_waits"]
    waits = found(findings, "move_waits")
    assert waits.severity == "warning"
    assert "never ends: 8.0 kB/s are written meanwhile" in waits.summary
    assert "tidelog throttle set 12kB" in waits.next_step
    assert "by itself" not in text_of(waits)
    assert "at this pace" not in text_of(waits)


def test_a_sufficient_rate_covers_the_peak_write_rate(
    cluster: DescribedCluster,
) -> None:
    bounded(cluster, rate=4_096, written=8_000, most=20_000)
    waits = found(cluster.explain(), "move_waits")
    assert "tidelog throttle set 30kB" in waits.next_step
    assert "about 8.0 kB/s together, and 20.0 kB/s at the most" in text_of(waits)


def test_a_throttle_above_the_write_rate_has_an_end_time(cluster: DescribedCluster) -> None:
    bounded(cluster, rate=9_000, written=8_000)
    cluster.seen("sea/0", 4, lag_bytes=6_000)
    waits = found(cluster.explain(), "move_waits")
    assert waits.severity == "info"
    assert "at this rate the copy ends in about 6.0 s" in text_of(waits)


def test_a_throttled_move_without_present_writes_has_an_end(
    cluster: DescribedCluster,
) -> None:
    bounded(cluster, rate=1_024, written=0)
    cluster.seen("sea/0", 4, lag_bytes=800_000, lag_ms=8_000)
    assert "never ends" not in text_of(found(cluster.explain(), "move_waits"))


def test_without_a_write_rate_no_end_time_is_given(cluster: DescribedCluster) -> None:
    bounded(cluster, rate=4_096, written=None)
    cluster.seen("sea/0", 4, lag_bytes=50_000, lag_ms=10_000)
    text = text_of(found(cluster.explain(), "move_waits"))
    assert "never ends" not in text
    assert "the copy ends" not in text


def test_a_throttled_replica_is_not_cut_off(cluster: DescribedCluster) -> None:
    bounded(cluster, rate=1_024, written=0)
    cluster.seen("sea/0", 4, last_fetch_ms=9_000)
    findings = cluster.explain()
    assert causes_of(findings) == ["move_waits"]
    assert "at no more than 1 KiB/s" in findings[0].summary


def test_a_throttled_replica_with_failing_fetches_is_cut_off(cluster: DescribedCluster) -> None:
    bounded(cluster, rate=1_024, written=0)
    cluster.seen("sea/0", 4, last_fetch_ms=9_000)
    cluster.replica("sea/0", 4, follower=FollowerState(1, 9_000, "no answer within 5 s", 4_000))
    assert "replica_cut_off" in causes_of(cluster.explain())


def test_the_throttle_has_to_cover_all_moving_partitions(
    cluster: DescribedCluster,
) -> None:
    """Each of two partitions is written at three quarters of the throttle."""
    bounded(cluster, rate=4_000, written=3_000)
    first = cluster.keys[at("sea/0")]
    cluster.keys[at("sea/1")] = replace(first, partition=1)
    for (name, broker_id), replica in list(cluster.replicas.items()):
        cluster.replicas[name._replace(partition=1), broker_id] = replace(replica, partition=1)
    waits = found(cluster.explain(), "move_waits")
    assert waits.partition_count == 2
    assert "never ends: 6.0 kB/s" in waits.summary
