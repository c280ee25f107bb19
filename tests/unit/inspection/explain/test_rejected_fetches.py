"""A leader that rejects a follower proves that the network works; these tests cover the reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.state_reports import BrokerBacklog, FollowerState
from unit.inspection.explain.described import (
    NOW_MS,
    DescribedCluster,
    causes_of,
    found,
    text_of,
)

PREVIOUS_INCARNATION = "broker 1 lives in broker epoch 952; the fetch is for its former life 750"
REFUSALS = (
    "broker 1 does not lead sea/0; broker 3 does in epoch 1",
    "sea/0 is in leader epoch 5 on broker 1, the request knows 4",
    "sea/0 has no leader now; try again with fresh metadata",
    PREVIOUS_INCARNATION,
)
ALL = ("broker-1", "broker-2", "broker-3", "controller-1")


@pytest.fixture
def cluster() -> DescribedCluster:
    """Broker 2 is out of the ISR of sea/0, which broker 1 leads."""
    described = DescribedCluster()
    described.partition("sea/0", isr=(1, 3))
    return described


def behind(broker_id: int, oldest_ms: int = 20_000, *, overdue: bool = True) -> BrokerBacklog:
    problem = "DEADLINE_EXCEEDED: Deadline Exceeded"
    return BrokerBacklog(broker_id, 10 + broker_id, 3, oldest_ms, overdue, problem=problem)


@pytest.mark.parametrize("problem", REFUSALS)
def test_a_rejection_follows_from_the_backlog_of_the_leader(
    cluster: DescribedCluster, problem: str
) -> None:
    cluster.rejects_fetches("sea/0", 2, problem)
    cluster.backlogs.append(behind(1))
    findings = cluster.explain()
    assert causes_of(findings) == ["command_overdue"]
    assert findings[0].broker == 1
    assert f'broker-1 has rejected the fetches of broker 2 for 13.0 s: "{problem}"' in (
        text_of(findings[0])
    )
    assert "1 partition with replicas out of the ISR: sea/0" in text_of(findings[0])


def test_a_rejection_follows_from_the_backlog_of_the_follower_where_the_leader_has_none(
    cluster: DescribedCluster,
) -> None:
    cluster.rejects_fetches("sea/0", 2, REFUSALS[1])
    cluster.backlogs.append(behind(2))
    findings = cluster.explain()
    assert [(f.cause, f.broker) for f in findings] == [("command_overdue", 2)]
    assert "out of the ISR of 1 partition: sea/0" in text_of(findings[0])


def test_a_rejection_names_the_store_that_both_lack(cluster: DescribedCluster) -> None:
    cluster.rejects_fetches("sea/0", 2, PREVIOUS_INCARNATION)
    cluster.lose_store(*ALL)
    findings = cluster.explain()
    assert causes_of(findings) == ["store_unreachable"]
    assert PREVIOUS_INCARNATION in text_of(findings[0])


def test_a_rejection_names_the_store_that_only_the_follower_lacks(
    cluster: DescribedCluster,
) -> None:
    cluster.rejects_fetches("sea/0", 2, PREVIOUS_INCARNATION)
    cluster.lose_store("broker-2")
    lost = found(cluster.explain(broker=2), "store_unreachable")
    assert (lost.broker, PREVIOUS_INCARNATION in text_of(lost)) == (2, True)


def test_a_rejection_by_a_starting_leader_follows_from_the_start(
    cluster: DescribedCluster,
) -> None:
    cluster.rejects_fetches("sea/0", 2, REFUSALS[2])
    cluster.brokers[1] = replace(cluster.brokers[1], has_full_state=False, state="starting")
    findings = cluster.explain()
    assert [(f.cause, f.broker) for f in findings] == [("broker_starting", 1)]
    assert findings[0].summary.endswith(": 1 partition with replicas out of the ISR")


def test_a_rejection_without_a_controller_waits_for_one(cluster: DescribedCluster) -> None:
    cluster.rejects_fetches("sea/0", 2, REFUSALS[0])
    cluster.stop_controller()
    assert causes_of(cluster.explain()) == ["no_controller"]


@pytest.mark.parametrize("last_fetch_ms", [200, 20_000])
@pytest.mark.parametrize(("for_ms", "severity"), [(400, "info"), (9_000, "warning")])
def test_an_unexplained_rejection_is_reported_as_it_is(
    cluster: DescribedCluster, for_ms: int, severity: str, last_fetch_ms: int
) -> None:
    cluster.rejects_fetches("sea/0", 2, REFUSALS[0], for_ms)
    cluster.seen("sea/0", 2, last_fetch_ms=last_fetch_ms, lag_records=60, log_end_offset=40)
    out = found(cluster.explain(), "replica_out_of_isr")
    assert (out.severity, out.because) == (severity, ())
    assert "its leader, broker 1, rejects its fetches" in out.summary
    assert REFUSALS[0] in text_of(out)
    assert "network" not in text_of(out)


def test_a_symptom_of_a_recent_command_is_reported_with_it(
    cluster: DescribedCluster,
) -> None:
    cluster.rejects_fetches("sea/0", 2, REFUSALS[0])
    cluster.backlogs.append(BrokerBacklog(1, 11, 3, 400, overdue=False))
    findings = cluster.explain("sea", 0)
    assert [(f.cause, f.broker) for f in findings] == [("command_backlog", 1)]


def test_a_leader_that_has_not_learned_of_its_election_is_reported(
    cluster: DescribedCluster,
) -> None:
    cluster.replica("sea/0", 1, leader=None, role="none", leader_epoch=4)
    cluster.backlogs.append(behind(1))
    findings = cluster.explain()
    assert [(f.cause, f.broker) for f in findings] == [("command_overdue", 1)]
    assert "has the role 'none' in leader epoch 4; the newest leader epoch is 5" in (
        text_of(findings[0])
    )


# Missing fetches.


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_broker_late_with_its_commands_is_busy_and_not_cut_off(
    cluster: DescribedCluster, broker_id: int
) -> None:
    cluster.seen("sea/0", 2, last_fetch_ms=20_700, lag_records=60, log_end_offset=40)
    cluster.backlogs.append(behind(broker_id))
    findings = cluster.explain()
    assert [(f.cause, f.broker) for f in findings] == [("command_overdue", broker_id)]
    assert "has received its last fetch 20.7 s ago" in text_of(findings[0])


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_first_fetch_in_a_young_epoch_waits_for_late_commands(
    cluster: DescribedCluster, broker_id: int
) -> None:
    cluster.partition("sea/0", isr=(1, 3), changed_at_ms=NOW_MS - 300)
    cluster.seen("sea/0", 2, last_fetch_ms=-1, lag_records=-1, log_end_offset=-1)
    cluster.backlogs.append(behind(broker_id, oldest_ms=2_000, overdue=False))
    findings = cluster.explain()
    assert [(f.cause, f.broker) for f in findings] == [("command_backlog", broker_id)]
    assert "has received no fetch from it in this epoch" in text_of(findings[0])


def test_a_backlog_of_another_broker_excuses_no_silence(cluster: DescribedCluster) -> None:
    cluster.seen("sea/0", 2, last_fetch_ms=20_700, lag_records=60, log_end_offset=40)
    cluster.backlogs.append(behind(3))
    assert found(cluster.explain(), "replica_cut_off").broker == 2


def test_a_follower_that_cannot_reach_its_leader_is_cut_off_despite_a_backlog(
    cluster: DescribedCluster,
) -> None:
    cluster.replica("sea/0", 2, follower=FollowerState(1, 7_100, "connect: timed out", 7_000))
    cluster.backlogs.append(behind(2))
    assert found(cluster.explain(), "replica_cut_off").broker == 2


def test_a_follower_in_an_older_epoch_is_not_missing_in_the_newer_one(
    cluster: DescribedCluster,
) -> None:
    cluster.replica("sea/0", 2, leader_epoch=4)
    cluster.seen("sea/0", 2, last_fetch_ms=20_700, lag_records=60, log_end_offset=40)
    assert "replica_cut_off" not in causes_of(cluster.explain())
