"""Operations whose moves have not begun, and partitions whose removal waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.state_reports import StandingOperation, WaitingDeletion
from unit.inspection.explain.described import DescribedCluster, found

WAITS = StandingOperation("grow", "brokers_add", moves_waiting=7, moves_active=2, moves_done=3)


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


def test_an_operation_waits_for_a_broker_that_is_dead(cluster: DescribedCluster) -> None:
    cluster.kill(3)
    cluster.operations.append(replace(WAITS, not_ready=(3,)))
    waits = found(cluster.explain(), "operation_waits")
    assert waits.severity == "warning"
    assert waits.summary.startswith("operation grow (brokers_add) has moves that add replicas to")
    assert waits.broker == 3
    assert waits.because == ("replica_dead of broker 3",)
    assert "cancel operation grow" in waits.next_step


def test_waiting_for_a_starting_broker_raises_no_alarm(cluster: DescribedCluster) -> None:
    cluster.brokers[2] = replace(cluster.brokers[2], has_full_state=False, state="starting")
    cluster.operations.append(replace(WAITS, not_ready=(2,)))
    waits = found(cluster.explain(), "operation_waits")
    assert (waits.severity, waits.next_step) == ("info", "Nothing; they begin by themselves.")


def test_a_serving_broker_only_has_to_acknowledge_its_state(cluster: DescribedCluster) -> None:
    cluster.operations.append(replace(WAITS, not_ready=(2,)))
    waits = found(cluster.explain(), "operation_waits")
    assert "broker 2 has yet to acknowledge its full state" in waits.summary
    assert waits.severity == "info"


def test_an_operation_is_queued(cluster: DescribedCluster) -> None:
    cluster.operations.append(replace(WAITS, moves_active=0, busy=(2, 3)))
    waits = found(cluster.explain(), "operation_waits")
    assert waits.severity == "info"
    assert "brokers 2, 3 receive as many moves" in waits.summary


def test_an_operation_with_some_moves_in_progress_is_normal(
    cluster: DescribedCluster,
) -> None:
    cluster.operations.append(replace(WAITS, busy=(2, 3)))
    assert cluster.explain() == []


def test_partitions_without_a_leader_delay_an_operation(cluster: DescribedCluster) -> None:
    cluster.operations.append(replace(WAITS, without_leader=2))
    waits = found(cluster.explain(), "operation_waits")
    assert (waits.severity, "2 partitions to have a leader" in waits.summary) == ("warning", True)


def test_a_cancelled_operation_starts_no_more_moves(cluster: DescribedCluster) -> None:
    cluster.operations.append(replace(WAITS, not_ready=(3,), cancelling=True))
    assert cluster.explain() == []


def test_a_pending_operation_is_in_the_scope_of_its_broker_and_not_of_a_topic(
    cluster: DescribedCluster,
) -> None:
    cluster.kill(3)
    cluster.operations.append(replace(WAITS, not_ready=(3,)))
    causes = {finding.cause for finding in cluster.explain(broker=3)}
    assert "operation_waits" in causes
    assert "operation_waits" not in {f.cause for f in cluster.explain("sea")}


def test_a_removal_of_partitions_waits_for_brokers_as_a_deletion_does(
    cluster: DescribedCluster,
) -> None:
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 9_000, (2,), 4))
    waits = found(cluster.explain(), "deletion_waits")
    assert waits.summary == (
        "the removal of the partitions of topic 'sea' from 4 on has waited 9.0 s for broker 2"
    )
