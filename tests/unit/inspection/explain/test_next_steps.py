"""Next steps fit the situation in which they are given."""

from __future__ import annotations

import pytest

from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import (
    BrokerState,
    DamagedOffsets,
    DivergedOffsets,
    PartitionMoveState,
)
from unit.inspection.explain.described import DescribedCluster, found

ALL = ("broker-1", "broker-2", "broker-3", "controller-1")


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


# Stalled high watermarks.


def of_stall(cluster: DescribedCluster) -> str:
    return found(cluster.explain(), "hw_stalled").next_step


def test_a_follower_that_holds_the_high_watermark_leaves_the_isr_in_time(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.stalls("sea/0", held_by=2)
    assert "leaves the ISR after replica_lag_time_max_ms" in of_stall(cluster)


def test_below_min_isr_no_replica_is_expected_to_leave_the_isr(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1,))
    cluster.stalls("sea/0", held_by=2)
    assert of_stall(cluster) == (
        "Bring brokers 2, 3 back into the ISR. The high watermark advances when 2 replicas are in "
        "sync, and not before."
    )


def test_below_min_isr_without_the_store_the_store_comes_first(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1,))
    cluster.stalls("sea/0", held_by=2)
    cluster.lose_store(*ALL)
    assert of_stall(cluster).startswith(
        "Restore access to the metadata store, without which no replica joins the ISR; then bring "
        "brokers 2, 3 back into the ISR."
    )


def test_without_the_store_no_replica_leaves_the_isr(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0")
    cluster.stalls("sea/0", held_by=2)
    cluster.lose_store(*ALL)
    assert of_stall(cluster) == (
        "Repair broker 2, or restore the metadata store: without it no replica can be removed from "
        "the ISR."
    )


def test_at_min_isr_a_leaving_follower_does_not_help(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (1, 2))
    cluster.stalls("sea/0", held_by=2)
    step = of_stall(cluster)
    assert step.startswith("Repair broker 2: without broker 2 the ISR is below min ISR")
    assert "replica_lag_time_max_ms" not in step


def test_a_leader_that_holds_its_own_high_watermark_is_to_be_checked(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.replica("sea/0", 1, synced=True, flushed_offset=60, high_watermark=60)
    cluster.leads("sea/0", hw_stalled_ms=5_000)
    assert of_stall(cluster).startswith("Check broker 1, its leader, and its disk")


# Leaders that do not serve.


def of_leader_gone(cluster: DescribedCluster) -> str:
    return found(cluster.explain(), "no_leader").next_step


def dead(cluster: DescribedCluster) -> None:
    """Dead and still registered."""
    cluster.partition("sea/0", (2, 3))
    cluster.silence(2, Listening.REFUSES)
    cluster.unheard(2)


def paused(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (2, 3))
    cluster.pause(2)


def test_a_dead_process_is_not_to_be_stopped(cluster: DescribedCluster) -> None:
    dead(cluster)
    assert of_leader_gone(cluster) == (
        "Run explain again in some seconds; if this remains, check the controller's log."
    )


def test_a_long_paused_leader_is_to_be_stopped(cluster: DescribedCluster) -> None:
    paused(cluster)
    assert of_leader_gone(cluster).endswith("if this remains, stop broker 2's process.")


def test_a_paused_leader_without_a_successor_is_to_be_resumed_before_restarted(
    cluster: DescribedCluster,
) -> None:
    paused(cluster)
    cluster.kill(3)
    assert of_leader_gone(cluster).startswith(
        "Let broker 2's process continue (kill -CONT PID), if it is stopped; otherwise stop it "
        "first. Start broker 2 or broker 3: one of them is enough"
    )


def test_a_paused_in_sync_broker_is_to_be_resumed_and_not_started() -> None:
    cluster = DescribedCluster()
    cluster.partition("sea/0", leader=-1, isr=(2, 3))
    cluster.kill(2)
    cluster.pause(3)
    del cluster.registered[3]
    assert found(cluster.explain(), "no_leader").next_step.startswith(
        "Let broker 3's process continue (kill -CONT PID), if it is stopped; otherwise stop it "
        "first. Start broker 2 or broker 3: one of them is enough"
    )


def test_without_the_store_neither_stopping_nor_starting_a_leader_helps(
    cluster: DescribedCluster,
) -> None:
    dead(cluster)
    cluster.lose_store(*ALL)
    assert of_leader_gone(cluster) == (
        "Restore access to the metadata store: without it no leader is elected, and broker 2 "
        "cannot lead after a restart."
    )


def test_without_the_store_a_paused_leader_may_resume(cluster: DescribedCluster) -> None:
    paused(cluster)
    cluster.lose_store(*ALL)
    step = of_leader_gone(cluster)
    assert step.startswith("Restore access to the metadata store")
    assert step.endswith("Or let broker 2's process continue (kill -CONT PID), if it is stopped.")


def test_without_store_and_controller_the_store_comes_first(cluster: DescribedCluster) -> None:
    dead(cluster)
    cluster.lose_store(*ALL)
    cluster.stop_controller()
    assert of_leader_gone(cluster).startswith("Restore access to the metadata store")


def test_without_a_controller_restarting_the_leader_is_no_remedy(
    cluster: DescribedCluster,
) -> None:
    dead(cluster)
    cluster.stop_controller()
    assert of_leader_gone(cluster) == (
        "Start a controller: it elects another leader; broker 2 after a restart waits for a "
        "controller, too."
    )


# An inactive broker and the store.


def test_a_broker_that_died_without_the_store_is_started_after_it(
    cluster: DescribedCluster,
) -> None:
    dead(cluster)
    cluster.lose_store(*ALL)
    step = found(cluster.explain(), "replica_dead").next_step
    assert step.startswith("Restore the metadata store first: without it broker 2")
    assert "rejoins every ISR by itself" not in step


def test_a_broker_that_died_without_a_controller_is_started_after_one(
    cluster: DescribedCluster,
) -> None:
    dead(cluster)
    cluster.stop_controller()
    step = found(cluster.explain(), "replica_dead").next_step
    assert step.startswith("Start a controller first")


def test_a_paused_broker_without_the_store_is_not_to_be_restarted(
    cluster: DescribedCluster,
) -> None:
    paused(cluster)
    cluster.lose_store(*ALL)
    step = found(cluster.explain(), "broker_paused").next_step
    assert "kill -CONT PID" in step
    assert "Do not restart it before the metadata store is available again" in step


def test_a_departed_member_stays_in_the_isr_without_the_store(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.silence(3, Listening.REFUSES)
    cluster.unheard(3)
    cluster.lose_store(*ALL)
    findings = cluster.explain("sea", 0)
    assert [finding.cause for finding in findings] == ["store_unreachable", "replica_dead"]
    assert "1 partition with a broker in the ISR that is gone: sea/0" in findings[0].evidence
    assert findings[1].next_step.startswith("Restore the metadata store first")


def test_an_unreachable_store_names_each_broker(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0")
    cluster.lose_store(*ALL)
    assert [f.cause for f in cluster.explain(broker=2)] == ["store_unreachable"]
    assert cluster.explain("sea", 0) == []


def test_without_a_controller_a_paused_leader_may_resume(
    cluster: DescribedCluster,
) -> None:
    paused(cluster)
    cluster.stop_controller()
    step = of_leader_gone(cluster)
    assert step.startswith("Start a controller: it elects another leader. Or let broker 2's")


def test_a_step_for_several_partitions_names_all_that_its_commands_concern() -> None:
    """Of findings that group partitions, none names the command of one of them only."""
    cluster = DescribedCluster()
    cluster.brokers[4] = BrokerState(14, "running", has_full_state=True, controller_epoch=4)
    for name, operation in (("sea/0", "grow-1"), ("bay/0", "grow-2")):
        move = PartitionMoveState(operation, (1, 2, 3), (1, 2, 4), waits_for=(4,))
        cluster.partition(name, (1, 2, 3, 4), isr=(1, 2, 3), move=move)
    cluster.pause(4)
    waits = found(cluster.explain(), "move_waits")
    assert waits.partition_count == 2
    for operation in ("grow-1", "grow-2"):
        assert f"tidelog operations cancel {operation}" in waits.next_step


def test_steps_about_damaged_and_diverged_records_name_all_topics() -> None:
    cluster = DescribedCluster()
    for name in ("sea/0", "bay/0"):
        cluster.partition(name)
        cluster.replica(name, 1, damaged=(DamagedOffsets(3, 5),))
    damaged = found(cluster.explain(), "records_damaged")
    for topic in ("sea", "bay"):
        assert f"tidelog consume {topic} --on-damage skip" in damaged.next_step
    for name in ("sea/0", "bay/0"):
        cluster.replica(name, 1, damaged=(), diverged=(DivergedOffsets(2, 3, 5, "a", "b"),))
    diverged = found(cluster.explain(), "replicas_diverged")
    assert diverged.partition_count == 2
    assert "Do the same for bay/0." in diverged.next_step
