"""Answers from different moments may disagree: each service describes the others in its turn."""

from __future__ import annotations

import pytest

from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import BrokerBacklog
from unit.inspection.explain.described import DescribedCluster, at, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    """According to its key, broker 2 is out of the ISR of sea/0, which broker 1 leads, and the
    partition is below min ISR."""
    described = DescribedCluster()
    described.partition("sea/0", isr=(1,), min_isr=3)
    return described


def test_a_partition_omitted_by_its_leader_is_healthy(
    cluster: DescribedCluster,
) -> None:
    cluster.omit_healthy("sea/0", 1, 2, 3)
    assert cluster.explain() == []


def test_commands_in_flight_do_not_contradict_a_leader(cluster: DescribedCluster) -> None:
    cluster.omit_healthy("sea/0", 1, 2, 3)
    cluster.backlogs.append(BrokerBacklog(2, 12, 40, 300, overdue=False))
    assert cluster.explain() == []


def test_a_leader_without_the_store_does_not_know_that_a_partition_is_healthy(
    cluster: DescribedCluster,
) -> None:
    cluster.omit_healthy("sea/0", 1)
    cluster.lose_store("broker-1")
    assert "under_min_isr" in causes_of(cluster.explain())


def test_a_leader_unaware_of_a_death_does_not_make_a_partition_healthy(
    cluster: DescribedCluster,
) -> None:
    cluster.omit_healthy("sea/0", 1, 3)
    cluster.kill(2)
    findings = cluster.explain()
    assert causes_of(findings) == ["replica_dead", "under_min_isr"]
    assert "the ISR is 1, 3, 2 of 3 replicas" in text_of(found(findings, "under_min_isr"))


def test_a_leader_that_omits_a_requested_topic_is_not_believed(
    cluster: DescribedCluster,
) -> None:
    cluster.omit_healthy("sea/0", 1)
    findings = cluster.explain("sea", 0)
    out = found([f for f in findings if f.broker == 2], "replica_out_of_isr")
    assert "its leader, broker 1, does not report it" in out.summary
    assert out.next_step == "tidelog explain --broker 1"


def test_a_follower_whose_fetches_arrive_knows_its_leader_although_it_omits_the_partition(
    cluster: DescribedCluster,
) -> None:
    cluster.omit_healthy("sea/0", 2)
    cluster.backlogs.append(BrokerBacklog(2, 12, 1, 300, overdue=False))
    out = found([f for f in cluster.explain() if f.broker == 2], "replica_out_of_isr")
    assert "about to be admitted" in out.summary


def test_a_leader_in_another_epoch_is_not_said_to_lack_the_previous_one(
    cluster: DescribedCluster,
) -> None:
    cluster.replica("sea/0", 1, leader=None, role="follower", leader_epoch=6)
    cluster.backlogs.append(BrokerBacklog(1, 11, 1, 300, overdue=False))
    assert "command_backlog" not in causes_of(cluster.explain())


def test_an_unanswered_leader_is_the_one_to_check(
    cluster: DescribedCluster,
) -> None:
    cluster.silence(1, Listening.BUSY)
    findings = cluster.explain()
    assert causes_of(findings) == ["broker_busy", "under_min_isr"]
    assert findings[0].broker == 1
    assert "1 partition with replicas out of the ISR" in findings[0].summary
    assert found(findings, "under_min_isr").because == ("broker_busy of broker 1",)


def test_a_replica_caught_up_within_the_last_second_is_not_slow(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, lag_records=1, log_end_offset=99, last_caught_up_ms=98)
    out = found(cluster.explain(), "replica_out_of_isr")
    assert out.severity == "info"
    assert "it had every record a moment ago and is about to be admitted" in out.summary


def test_an_isr_just_shrunk_by_its_leader_names_the_removed_follower(
    cluster: DescribedCluster,
) -> None:
    """The controller answered first: its key still has broker 2 in the ISR."""
    cluster.partition("bay/0", (1, 2))
    cluster.replica("bay/0", 1, revision=71, high_watermark=60)
    cluster.seen("bay/0", 2, in_isr=False, log_end_offset=60, lag_records=40)
    cluster.leads("bay/0", maximal_isr=(1,), hw_stalled_ms=8_000)
    cluster.kill(2)
    findings = cluster.explain(topic="bay")
    stalled = found(findings, "hw_stalled")
    assert stalled.because == ("replica_dead of broker 2",)
    assert "disk" not in text_of(stalled)
    assert stalled.next_step.startswith("Bring broker 2 back into the ISR")
    assert found(findings, "under_min_isr").because == ("replica_dead of broker 2",)


def test_an_isr_just_shrunk_is_below_min_isr_although_only_the_leader_reports_the_key(
    cluster: DescribedCluster,
) -> None:
    """The controller answered first, and left out the partition, which was healthy then."""
    cluster.partition("bay/0", (1, 2))
    cluster.replica("bay/0", 1, revision=71, high_watermark=60)
    cluster.seen("bay/0", 2, in_isr=False, log_end_offset=60, lag_records=40)
    cluster.leads("bay/0", maximal_isr=(1,), hw_stalled_ms=8_000)
    cluster.kill(2)
    del cluster.keys[at("bay/0")]
    findings = cluster.explain()
    stalled = found(findings, "hw_stalled")
    assert stalled.because == ("replica_dead of broker 2",)
    assert stalled.next_step.startswith("Bring broker 2 back into the ISR")
    assert found(findings, "under_min_isr").because == ("replica_dead of broker 2",)


def test_an_isr_of_an_older_epoch_is_not_taken_from_the_leader(cluster: DescribedCluster) -> None:
    cluster.partition("bay/0", (1, 2))
    cluster.replica("bay/0", 1, revision=71, leader_epoch=4)
    cluster.seen("bay/0", 2, in_isr=False)
    assert "under_min_isr" not in causes_of(cluster.explain(topic="bay"))
