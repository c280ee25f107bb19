"""Faults of brokers and their consequences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import (
    FollowerState,
)
from unit.inspection.explain.described import (
    NOW_MS,
    DescribedCluster,
    address,
    causes_of,
    found,
    text_of,
)


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


def test_a_healthy_cluster_has_no_findings(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0")
    assert cluster.explain() == []


def test_a_dead_broker_is_one_finding_with_all_its_consequences(
    cluster: DescribedCluster,
) -> None:
    for i in range(14):
        cluster.partition(f"sea/{i}", (1, 2, 3), isr=(1, 3))
    for i in range(3):
        cluster.partition(f"bay/{i}", (1, 2), isr=(1,))
    cluster.kill(2)

    findings = cluster.explain()

    assert causes_of(findings) == ["replica_dead", "under_min_isr"]
    dead = findings[0]
    assert (dead.broker, dead.severity, dead.partition_count) == (2, "critical", 17)
    assert dead.summary == (
        "broker 2 is gone: 3 partitions below min ISR, out of the ISR of 17 partitions"
    )
    assert "ended at 2023-11-14T22:12:45Z (35.0 s ago): broker_crashed" in text_of(dead)
    assert "broker_crashed" in text_of(dead)
    assert f"{address(2)} refuses connections" in text_of(dead)


def test_a_consequence_names_its_root(cluster: DescribedCluster) -> None:
    cluster.partition("bay/0", (1, 2), isr=(1,))
    cluster.kill(2)
    assert found(cluster.explain(), "under_min_isr").because == ("replica_dead of broker 2",)


def test_a_broker_that_accepts_connections_without_answering_is_paused(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.pause(2)
    paused = found(cluster.explain(), "broker_paused")
    assert (paused.broker, paused.partitions) == (2, ("sea/0",))
    assert "it is registered in incarnation 12" in text_of(paused)


def test_a_paused_broker_whose_lease_has_ended_is_paused_and_not_dead(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.pause(2)
    del cluster.registered[2]
    assert causes_of(cluster.explain()) == ["broker_paused"]


def test_a_registered_unresponsive_broker_is_unreachable_and_not_dead(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.silence(2, Listening.SILENT)
    assert causes_of(cluster.explain()) == ["broker_unreachable"]


def test_a_broker_whose_fetches_arrive_is_not_dead_although_its_address_refuses_connections(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.seen("sea/0", 2, last_fetch_ms=120)
    cluster.silence(2, Listening.REFUSES)
    unreachable = found(cluster.explain(), "broker_unreachable")
    assert "a leader received a fetch from it 120 ms ago" in text_of(unreachable)


def test_without_the_store_a_broker_that_refuses_connections_is_dead_all_the_same(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 2, 3))
    cluster.silence(2, Listening.REFUSES)
    cluster.seen("sea/0", 2, last_fetch_ms=60_000)
    cluster.lose_store("broker-1", "broker-3", "controller-1")
    dead = found(cluster.explain(), "replica_dead")
    assert "controller-1, which does not reach the metadata store now" in text_of(dead)


def test_an_orderly_stopped_broker_without_replicas_is_no_finding(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (1, 3))
    cluster.kill(2, cause="broker_stopped")
    assert cluster.explain() == []


def test_an_orderly_stopped_broker_with_replicas_is_not_called_dead(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.partition("bay/0", (1, 3), isr=(1,))
    cluster.kill(2, cause="broker_stopped")
    cluster.kill(3)
    findings = cluster.explain()
    stopped = found(findings, "broker_stopped")
    assert (stopped.broker, stopped.partitions) == (2, ("sea/0",))
    assert stopped.summary.startswith("broker 2 is gone: it was stopped and is not back")
    assert "dead" not in text_of(stopped)
    assert "the reason for its end" not in text_of(stopped)
    assert "broker_stopped" in text_of(stopped)
    assert found(findings, "replica_dead").broker == 3


def test_a_crashed_broker_is_reported_although_no_partition_needs_it(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (1, 3))
    cluster.kill(2)
    assert causes_of(cluster.explain()) == ["replica_dead"]


def test_a_slow_replica_fetches_and_lacks_records(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, log_end_offset=40, lag_records=60, lag_bytes=6_000, lag_ms=12_000)
    slow = found(cluster.explain(), "replica_slow")
    assert (slow.broker, slow.severity, slow.topic, slow.partition) == (2, "warning", "sea", 0)
    assert "lacks 60 records, 6.0 kB, the oldest of them written 12.0 s ago" in text_of(slow)


def test_the_rate_of_a_slow_replica_comes_from_an_earlier_sample(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, log_end_offset=40, lag_records=60)
    cluster.earlier = [s for s in cluster.observed().states if s.id == 1 and s.role == "broker"]
    cluster.seen("sea/0", 2, log_end_offset=50, lag_records=250)
    cluster.replica("sea/0", 1, log_end_offset=300)
    slow = found(cluster.explain(), "replica_slow")
    assert (
        "within 500 ms it received 20 records per second, while 400 per second were written"
        in text_of(slow)
    )


def test_a_replica_faster_than_the_writes_is_catching_up(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, log_end_offset=40, lag_records=60)
    cluster.earlier = [s for s in cluster.observed().states if s.id == 1 and s.role == "broker"]
    cluster.seen("sea/0", 2, log_end_offset=59, lag_records=51)
    cluster.replica("sea/0", 1, log_end_offset=110)
    findings = cluster.explain()
    assert causes_of(findings) == ["replica_catching_up"]
    assert (findings[0].broker, findings[0].severity) == (2, "info")
    assert "received 38 records per second, while 20 per second were written" in text_of(
        findings[0]
    )
    assert "at this rate it is caught up in about 2.8 s" in text_of(findings[0])
    assert "CPU" not in text_of(findings[0])


def test_growth_across_an_election_is_no_evidence(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, log_end_offset=40, lag_records=60)
    cluster.replica("sea/0", 1, leader_epoch=4)
    cluster.earlier = [s for s in cluster.observed().states if s.id == 1 and s.role == "broker"]
    cluster.replica("sea/0", 1, leader_epoch=5)
    cluster.seen("sea/0", 2, log_end_offset=59, lag_records=41)
    assert "per second were written" not in text_of(found(cluster.explain(), "replica_slow"))


def test_a_replica_is_cut_off_by_its_own_report(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.replica("sea/0", 2, follower=FollowerState(1, 7_100, "connect: timed out", 7_000))
    cut = found(cluster.explain(), "replica_cut_off")
    assert cut.broker == 2
    assert 'broker-2 cannot fetch from broker 1 for 7.0 s: "connect: timed out"' in text_of(cut)


def test_a_replica_is_cut_off_when_its_leader_sees_no_fetch_and_both_answer(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, last_fetch_ms=9_000, lag_records=60, log_end_offset=40)
    cut = found(cluster.explain(), "replica_cut_off")
    assert "the leader, has received its last fetch 9.0 s ago; both answer" in text_of(cut)


@pytest.mark.parametrize(
    ("epoch_age_ms", "cause"), [(300, "replica_out_of_isr"), (9_000, "replica_cut_off")]
)
def test_a_missing_first_fetch_is_a_finding_only_in_an_old_epoch(
    cluster: DescribedCluster, epoch_age_ms: int, cause: str
) -> None:
    cluster.partition("sea/0", isr=(1, 3), changed_at_ms=NOW_MS - epoch_age_ms)
    cluster.seen("sea/0", 2, last_fetch_ms=-1, lag_records=-1, log_end_offset=-1)
    assert causes_of(cluster.explain()) == [cause]


def test_a_pending_first_fetch_in_a_young_epoch_is_no_warning(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3), changed_at_ms=NOW_MS - 300)
    cluster.seen("sea/0", 2, last_fetch_ms=-1, lag_records=-1, log_end_offset=-1)
    assert found(cluster.explain(), "replica_out_of_isr").severity == "info"


def test_a_missing_first_fetch_in_an_epoch_of_unknown_age_is_no_finding(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, last_fetch_ms=-1, lag_records=-1, log_end_offset=-1)
    out = found(cluster.explain(), "replica_out_of_isr")
    assert "no fetch from it in this epoch yet" in out.summary
    assert out.severity == "warning"


@pytest.mark.parametrize(
    ("last_fetch_ms", "cause"), [(9_500, "replica_out_of_isr"), (12_500, "replica_cut_off")]
)
def test_an_empty_fetch_may_wait_up_to_the_configurable_maximum(
    cluster: DescribedCluster, last_fetch_ms: int, cause: str
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, last_fetch_ms=last_fetch_ms)
    assert causes_of(cluster.explain()) == [cause]


def test_a_live_broker_without_registration_is_unregistered(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    del cluster.registered[2]
    assert causes_of(cluster.explain()) == ["broker_unregistered"]


def test_a_caught_up_replica_is_about_to_be_admitted(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    back = found(cluster.explain(), "replica_out_of_isr")
    assert (back.severity, back.broker) == ("info", 2)


def test_a_replica_without_reports_gets_no_invented_reason(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.leads("sea/0", followers=())
    out = found(cluster.explain(), "replica_out_of_isr")
    assert "no service reports why" in out.summary
    assert out.because == ()


def test_two_faults_are_distinguished(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (1, 2), isr=(1,), min_isr=1)
    cluster.partition("bay/0", (1, 3), isr=(1,), min_isr=1)
    cluster.partition("fjord/0", (1,))
    cluster.kill(2)
    cluster.seen("bay/0", 3, log_end_offset=1, lag_records=99)
    findings = cluster.explain()
    assert found(findings, "replica_dead").partitions == ("sea/0",)
    assert found(findings, "replica_slow").partitions == ("bay/0",)
    assert "fjord" not in "".join(map(text_of, findings))


def test_a_scope_excludes_unrelated_findings(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (1, 2), isr=(1,), min_isr=1)
    cluster.partition("bay/0", (1, 3), isr=(1,), min_isr=1)
    cluster.partition("fjord/0", (1,))
    cluster.kill(2)
    cluster.seen("bay/0", 3, log_end_offset=1, lag_records=99)
    assert causes_of(cluster.explain("sea")) == ["replica_dead"]
    assert causes_of(cluster.explain("bay", 0)) == ["replica_slow"]
    assert cluster.explain("fjord") == []
    assert causes_of(cluster.explain(broker=3)) == ["replica_slow"]


def test_times_use_the_clock_of_the_reporting_service(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.kill(2, ago_ms=3_600_000)
    assert "(1 h 0 min ago)" in text_of(found(cluster.explain(), "replica_dead"))


def test_a_broker_without_its_full_state_is_starting(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.brokers[2] = replace(cluster.brokers[2], has_full_state=False, state="starting")
    starting = found(cluster.explain(), "broker_starting")
    assert (starting.severity, starting.broker) == ("warning", 2)


def test_a_broker_that_starts_without_a_controller_follows_from_that(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.brokers[2] = replace(cluster.brokers[2], has_full_state=False, state="starting")
    cluster.stop_controller()
    for findings in (cluster.explain(), cluster.explain("sea", 0), cluster.explain(broker=2)):
        starting = found(findings, "broker_starting")
        assert starting.because == ("no_controller",)
        assert "waits for a controller" in starting.next_step
        assert "no_controller" in causes_of(findings)


def test_a_broker_that_starts_without_the_store_follows_from_that(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.brokers[2] = replace(cluster.brokers[2], has_full_state=False, state="starting")
    cluster.lose_store("broker-2")
    starting = found(cluster.explain(), "broker_starting")
    assert starting.because == ("store_unreachable of broker 2",)


def test_a_broker_that_lost_its_registration_is_not_starting(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.brokers[2] = replace(cluster.brokers[2], state="starting")
    del cluster.registered[2]
    assert causes_of(cluster.explain()) == ["broker_unregistered"]


def test_an_advertised_name_that_does_not_resolve_is_named_and_not_the_network(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 1, 3), isr=(2,))
    cluster.partition("bay/0", (1,))
    cluster.partition("cape/0", (1, 2))
    cluster.silence(2, Listening.UNRESOLVED)
    findings = cluster.explain()
    unreachable = found(findings, "broker_unreachable")
    assert "advertises a name that does not resolve here: 127.0.0.1" in unreachable.summary
    assert unreachable.next_step.startswith("Correct advertised_address of broker 2")
    assert "sea/0" in text_of(unreachable)
    assert {"replica_out_of_isr", "replica_cut_off"}.isdisjoint(causes_of(findings))
