"""Faults of partitions and their causes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import InSyncMember, WaitingConsumer
from unit.inspection.explain.described import (
    NOW_MS,
    DescribedCluster,
    at,
    causes_of,
    found,
    text_of,
)


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


def without_leader(cluster: DescribedCluster, name: str, **differs: Any) -> None:
    """The ISR {2, 3} has died or returned; broker 1 was never in it."""
    cluster.partition(
        name,
        leader=-1,
        isr=(2, 3),
        change_id="c4-17",
        change_cause="broker_crashed",
        changed_at_ms=NOW_MS - 20_000,
        **differs,
    )


# No leader.


def test_a_partition_without_leader_names_its_in_sync_replicas_and_when_they_died(
    cluster: DescribedCluster,
) -> None:
    without_leader(cluster, "sea/0")
    cluster.partition("bay/0", (1,))
    cluster.kill(2, ago_ms=20_000)
    cluster.kill(3, cause="broker_lease_ended", ago_ms=25_000)

    findings = cluster.explain()

    missing = found(findings, "no_leader")
    assert (missing.severity, missing.topic, missing.partition) == ("critical", "sea", 0)
    text = text_of(missing)
    assert "waits for any one of brokers 2, 3, each last known to hold every" in text
    assert missing.next_step.startswith("Start broker 2 or broker 3: one of them is enough")
    assert "leader epoch 5 since 2023-11-14T22:13:00Z (20.0 s)" in text
    assert "(change c4-17)" in text
    assert "broker 2 was in the ISR in its incarnation 12; gone since" in text
    assert "by broker_lease_ended" in text
    assert missing.because == ("replica_dead of broker 2", "replica_dead of broker 3")
    assert "bay" not in "".join(map(text_of, findings))


def test_only_the_absent_member_is_waited_for(cluster: DescribedCluster) -> None:
    without_leader(cluster, "sea/0")
    cluster.kill(2)
    cluster.registered[3] = replace(cluster.registered[3], broker_epoch=40, whole_since=40)
    text = text_of(found(cluster.explain(), "no_leader"))
    assert "waits for broker 2, last known to hold every committed record" in text
    assert (
        "back in incarnation 40, and has lost data: it is intact only since incarnation 40" in text
    )
    assert "tidelog topics recover sea --partition 0 --from-live-replicas" in text


def test_a_manual_recovery_waits_for_consent_and_names_the_command(
    cluster: DescribedCluster,
) -> None:
    without_leader(cluster, "sea/0", recovery="manual")
    cluster.keys[at("sea/0")] = replace(
        cluster.keys[at("sea/0")],
        isr=(InSyncMember(2, 0), InSyncMember(3, 0)),
    )
    waiting = found(cluster.explain(), "no_leader")
    assert "waits for consent" in waiting.summary
    assert waiting.next_step.endswith("tidelog topics recover sea --partition 0")
    assert "known to have lost data" in text_of(waiting)


def test_one_intact_member_is_enough_beside_one_that_has_lost_data(
    cluster: DescribedCluster,
) -> None:
    without_leader(cluster, "sea/0")
    cluster.keys[at("sea/0")] = replace(
        cluster.keys[at("sea/0")], isr=(InSyncMember(2, 12), InSyncMember(3, 0))
    )
    cluster.kill(2)
    cluster.kill(3)
    missing = found(cluster.explain(), "no_leader")
    assert "waits for broker 2, last known to hold every committed record" in missing.summary
    assert "Start broker 2: it is enough, and no record is lost" in missing.next_step


@pytest.mark.parametrize("epoch", [12, 0])
def test_a_running_broker_is_not_to_be_started(cluster: DescribedCluster, epoch: int) -> None:
    without_leader(cluster, "sea/0")
    cluster.keys[at("sea/0")] = replace(
        cluster.keys[at("sea/0")], isr=(InSyncMember(2, epoch), InSyncMember(3, epoch))
    )
    cluster.replica("sea/0", 2, failure="disk_error", failure_message="Is a directory")
    cluster.kill(3)
    step = found(cluster.explain(), "no_leader").next_step
    conjunction = "or" if epoch else "and"
    assert step.startswith(
        f"Start broker 3 {conjunction} correct what broker 2 reports about its replica, which it "
        "then opens again within a minute: "
    )


def test_after_two_crashes_the_still_absent_member_is_enough(
    cluster: DescribedCluster,
) -> None:
    """Broker 1, which was not in sync, is back first."""
    without_leader(cluster, "sea/0")
    without_leader(cluster, "sea/3")
    cluster.kill(2)
    cluster.kill(3)
    step = found(cluster.explain(), "no_leader").next_step
    lossless, _, lossy = step.partition("Only if")
    assert "no record is lost" in lossless
    assert "--from-live-replicas" not in lossless
    assert "tidelog topics recover sea --partition 0 --partition 3 --from-live-replicas" in lossy


@pytest.mark.parametrize("isr", [(1,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize("dead", [(1,), (1, 2), (1, 3), (1, 2, 3)])
def test_an_election_is_announced_only_with_a_live_in_sync_replica(
    cluster: DescribedCluster, isr: tuple[int, ...], dead: tuple[int, ...]
) -> None:
    """Otherwise the finding is the same before the controller removes the dead leader and after."""
    cluster.partition("sea/0", isr=isr)
    for broker_id in dead:
        cluster.kill(broker_id)
    before = found(cluster.explain(), "no_leader")
    if set(isr) - set(dead):
        assert before.summary.endswith("another is elected once its registration has ended")
        return
    key = cluster.keys[at("sea/0")]
    cluster.keys[at("sea/0")] = replace(key, leader=-1, leader_epoch=key.leader_epoch + 1)
    after = found(cluster.explain(), "no_leader")
    assert "and no other can be elected; it waits for" in before.summary
    assert before.summary.endswith(after.summary.rpartition("; ")[2])
    assert (before.next_step, before.because) == (after.next_step, after.because)


def test_a_live_replica_that_lost_data_does_not_replace_a_dead_leader(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (1, 2))
    cluster.registered[2] = replace(cluster.registered[2], broker_epoch=40, whole_since=40)
    cluster.kill(1)
    missing = found(cluster.explain(), "no_leader")
    assert "no other can be elected; it waits for broker 1" in missing.summary


def test_any_live_replica_is_elected_where_unclean_elections_are_allowed(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1,), unclean_leader_election=True)
    cluster.kill(1)
    assert "another is elected" in found(cluster.explain(), "no_leader").summary


def test_a_dead_leader_without_a_replacement_is_no_leader(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 3))
    cluster.kill(2)
    cluster.stop_controller()
    missing = found(cluster.explain(), "no_leader")
    assert "led by broker 2, which is gone" in missing.summary
    assert missing.because == ("replica_dead of broker 2", "no_controller")


def test_without_the_store_a_dead_leader_is_not_replaced(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (2, 3))
    cluster.silence(2, Listening.REFUSES)
    cluster.unheard(2)
    cluster.lose_store("broker-1", "broker-3", "controller-1")
    missing = found(cluster.explain(), "no_leader")
    assert missing.because == ("replica_dead of broker 2", "store_unreachable")


def test_a_never_led_partition_waits_for_any_replica(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (2, 3), leader=-1, leader_epoch=-1, isr=())
    cluster.kill(2)
    cluster.kill(3)
    missing = found(cluster.explain(), "no_leader")
    assert "has never had a leader" in missing.summary
    assert missing.next_step == "Start any of brokers 2, 3."


def test_present_replicas_of_a_never_led_partition_are_not_called_missing(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 3), leader=-1, leader_epoch=-1, isr=())
    cluster.stop_controller()
    missing = found(cluster.explain(), "no_leader")
    assert "waits for its first election" in missing.summary
    assert missing.because == ("no_controller",)
    assert "Start any" not in missing.next_step


def without_replicas(cluster: DescribedCluster, name: str, replication_factor: int) -> None:
    cluster.partition(name, (1,))
    nowhere: dict[str, Any] = {
        "replicas": (),
        "leader": -1,
        "leader_epoch": -1,
        "isr": (),
        "revision": 0,
        "replication_factor": replication_factor,
    }
    cluster.keys[at(name)] = replace(cluster.keys[at(name)], **nowhere)
    del cluster.replicas[at(name), 1]


def test_a_partition_without_replicas_waits_for_more_brokers(cluster: DescribedCluster) -> None:
    without_replicas(cluster, "sea/0", 4)
    missing = found(cluster.explain(), "no_leader")
    assert missing.severity == "critical"
    assert "fewer brokers run than its replication factor needs" in missing.summary
    assert missing.evidence == ("3 brokers are running, and the replication factor is 4",)
    assert missing.next_step.startswith("Start brokers")


def test_a_stopping_broker_gets_no_new_replicas(cluster: DescribedCluster) -> None:
    without_replicas(cluster, "sea/0", 3)
    cluster.registered[3] = replace(cluster.registered[3], state="stopping")
    missing = found(cluster.explain(), "no_leader")
    assert missing.evidence == ("2 brokers are running, and the replication factor is 3",)


def test_partitions_without_replicas_are_in_creation_where_enough_brokers_run(
    cluster: DescribedCluster,
) -> None:
    for i in range(3):
        without_replicas(cluster, f"sea/{i}", 3)
    created = found(cluster.explain(), "no_leader")
    assert (created.severity, created.partition_count) == ("info", 3)
    assert created.summary == "3 partitions have no replicas yet: the controller is placing them"
    assert "Start brokers" not in created.next_step


def test_without_a_controller_no_partition_is_being_created(cluster: DescribedCluster) -> None:
    without_replicas(cluster, "sea/0", 3)
    cluster.stop_controller()
    missing = found(cluster.explain(), "no_leader")
    assert (missing.severity, missing.because) == ("critical", ("no_controller",))
    assert "no controller has chosen them" in missing.summary


def test_partitions_with_the_same_reasons_are_one_finding(cluster: DescribedCluster) -> None:
    for i in range(8):
        without_leader(cluster, f"sea/{i}")
    cluster.kill(2)
    cluster.kill(3)
    missing = found(cluster.explain(), "no_leader")
    assert (missing.partition, missing.partition_count) == (-1, 8)
    assert missing.partitions == ("sea/0", "sea/1", "sea/2", "sea/3", "sea/4")
    assert missing.summary.startswith("8 partitions have no leader")


def test_the_same_reasons_are_one_finding_in_whatever_order_replicas_are_assigned(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (1, 2, 3), isr=(1,))
    cluster.partition("sea/1", (1, 3, 2), isr=(1,))
    cluster.kill(2)
    cluster.kill(3)
    assert found(cluster.explain(), "under_min_isr").partition_count == 2


# Departed members without any writes.


@pytest.mark.parametrize(
    ("listening", "cause"),
    [
        (Listening.ACCEPTS, "broker_paused"),
        (Listening.REFUSES, "replica_dead"),
        (Listening.SILENT, "broker_unreachable"),
    ],
)
@pytest.mark.parametrize("broker_id", [2, 3])
def test_a_partition_with_a_departed_isr_member_is_unhealthy(
    cluster: DescribedCluster, listening: Listening, cause: str, broker_id: int
) -> None:
    cluster.partition("sea/0")
    cluster.partition("bay/0", (1, 5 - broker_id))
    cluster.silence(broker_id, listening)
    cluster.unheard(broker_id)
    [gone] = cluster.explain("sea", 0)
    assert (gone.cause, gone.severity, gone.broker) == (cause, "warning", broker_id)
    assert "still in the ISR of 1 partition: sea/0" in text_of(gone)
    assert cluster.explain("bay", 0) == []


def test_a_member_whose_fetches_arrive_belongs_in_the_isr(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.partition("bay/0", (1, 3))
    cluster.silence(2, Listening.ACCEPTS)
    [unreached] = cluster.explain("sea", 0)
    assert (unreached.cause, unreached.partitions) == ("broker_unreachable", ())
    assert cluster.explain("bay", 0) == []


# Below min ISR, and a stalled high watermark.


def test_below_min_isr_has_the_number_of_rejected_appends(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1,))
    cluster.leads("sea/0", refused_below_min_isr=412, last_refused_ms=90)
    cluster.kill(2)
    cluster.kill(3)
    below = found(cluster.explain(), "under_min_isr")
    assert (below.severity, below.topic, below.partition) == ("critical", "sea", 0)
    assert "has rejected 412 appends with acks=all in this epoch, the last 90 ms ago" in text_of(
        below
    )
    assert "the ISR is 1, 1 of 3 replicas; min ISR is 2" in text_of(below)
    assert below.because == ("replica_dead of broker 2", "replica_dead of broker 3")


def test_a_stalled_high_watermark_names_the_follower_that_holds_it_and_why(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.partition("bay/0", (1, 3))
    cluster.stalls("sea/0", held_by=2, at_offset=60, for_ms=8_000)
    cluster.pause(2)

    findings = cluster.explain()

    stalled = found(findings, "hw_stalled")
    assert "does not advance from 60 because broker 2 accepts connections and does not answer" in (
        stalled.summary
    )
    assert "nothing has moved for 8.0 s" in text_of(stalled)
    assert "broker 2 holds it back: its log ends at 60" in text_of(stalled)
    assert stalled.because == ("broker_paused of broker 2",)
    assert "broker 3" not in text_of(stalled)
    assert "bay" not in "".join(map(text_of, findings))


def test_records_waiting_for_the_next_fetch_are_no_stall(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0")
    cluster.stalls("sea/0", held_by=2, for_ms=300)
    assert "hw_stalled" not in causes_of(cluster.explain())


def test_a_stall_is_found_when_only_the_leader_describes_the_partition(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.stalls("sea/0", held_by=2)
    cluster.seen("sea/0", 2, last_fetch_ms=8_000)
    cluster.keys.clear()
    findings = cluster.explain()
    assert found(findings, "hw_stalled").because == ("replica_cut_off of broker 2",)


def test_a_dead_follower_holds_the_high_watermark_while_the_store_is_down(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.stalls("sea/0", held_by=2)
    cluster.seen("sea/0", 2, last_fetch_ms=8_000)
    cluster.kill(2)
    cluster.lose_store("broker-1", "broker-3", "controller-1")
    stalled = found(cluster.explain(), "hw_stalled")
    assert stalled.because == ("replica_dead of broker 2", "store_unreachable")


def test_below_min_isr_explains_a_stalled_high_watermark(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1,))
    cluster.stalls("sea/0", held_by=2)
    cluster.kill(2)
    cluster.kill(3)
    assert "because the ISR is below min ISR" in found(cluster.explain(), "hw_stalled").summary


def test_the_disk_of_a_synced_leader_can_hold_the_high_watermark(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.replica("sea/0", 1, synced=True, flushed_offset=60, high_watermark=60)
    cluster.leads("sea/0", hw_stalled_ms=5_000)
    stalled = found(cluster.explain(), "hw_stalled")
    assert "the disk of broker 1, its leader, syncs no further" in stalled.summary


def test_a_consumer_at_the_high_watermark_waits_for_the_cause_of_its_stall(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.stalls("sea/0", held_by=2, at_offset=60)
    cluster.leads("sea/0", waiting_consumers=(WaitingConsumer(75, 14, 200),))
    cluster.pause(2)
    waits = found(cluster.explain(), "consumer_waits")
    assert "at offset 75 get nothing" in waits.summary
    assert "between the high watermark (60) and the log's end (100)" in waits.summary
    assert "14 fetches at offset 75 answered empty, the last 200 ms ago" in text_of(waits)
    assert waits.because == ("broker_paused of broker 2", "hw_stalled of broker 1")


def test_a_consumer_waiting_for_records_in_flight_is_no_finding(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.stalls("sea/0", held_by=2, for_ms=100)
    cluster.leads("sea/0", waiting_consumers=(WaitingConsumer(60, 1, 20),))
    assert "consumer_waits" not in causes_of(cluster.explain())


# Elections.


def test_an_unclean_election_is_reported_in_its_epoch(cluster: DescribedCluster) -> None:
    at_ms = NOW_MS - 90_000
    cluster.partition(
        "sea/0",
        unclean_leader_epoch=5,
        lost_records=12,
        unclean_elected_at_ms=at_ms,
        changed_at_ms=NOW_MS - 1_000,
    )
    unclean = found(cluster.explain(), "unclean_election")
    assert (unclean.severity, unclean.partition) == ("warning", 0)
    assert "sea/0: 12 records that replicas were known to hold were truncated" in text_of(unclean)
    # Not the time of the later ISR change.
    assert "sea/0: broker 1 was elected in leader epoch 5 at 2023-11-14T22:11:50Z (1 min 30 s" in (
        text_of(unclean)
    )
    assert "tidelog trace sea/0 --since 2023-11-14T22:10:50Z." in unclean.next_step
    assert "tidelog leaders move sea/0=BROKER" in unclean.next_step


def test_unclean_elections_are_one_finding_that_names_each_partition(
    cluster: DescribedCluster,
) -> None:
    for i in range(2):
        cluster.partition(f"sea/{i}", unclean_leader_epoch=5, unclean_elected_at_ms=NOW_MS - 9_000)
    unclean = found(cluster.explain(), "unclean_election")
    assert "sea/0: broker 1 was elected" in text_of(unclean)
    assert "sea/1: broker 1 was elected" in text_of(unclean)
    assert "tidelog trace sea/0 sea/1 --since" in unclean.next_step


def test_an_unclean_election_of_an_older_release_has_no_time(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", unclean_leader_epoch=5, changed_at_ms=NOW_MS - 1_000)
    unclean = found(cluster.explain(), "unclean_election")
    assert "at a time that its key does not contain" in text_of(unclean)
    assert "--since" not in unclean.next_step


def test_loss_is_reported_unless_it_can_be_ruled_out(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", unclean_leader_epoch=5, lost_records=0)
    unclean = text_of(found(cluster.explain(), "unclean_election"))
    assert "records that every replica had lost before are not counted" in unclean


def test_an_unclean_election_of_an_earlier_epoch_is_over(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", unclean_leader_epoch=4)
    assert cluster.explain() == []


def test_an_unknown_loss_of_an_unclean_election_is_not_invented(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", unclean_leader_epoch=5)
    unclean = text_of(found(cluster.explain(), "unclean_election"))
    assert "how many records were lost is not known" in unclean


def test_the_worst_finding_comes_first(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", leader=2)
    cluster.partition("bay/0", isr=(1,))
    cluster.kill(3)
    severities = [finding.severity for finding in cluster.explain()]
    assert severities == ["critical", "critical", "info", "info"]
