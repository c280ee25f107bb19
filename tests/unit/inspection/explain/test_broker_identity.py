"""Broker ids that two data directories claim, and directories that lost data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.explain import causes, explain
from tidelog.inspection.explain.contested_ids import CONTESTED_MS
from tidelog.inspection.state_reports import Finding, RejectedStart, Scope
from unit.inspection.explain.described import NOW_MS, DescribedCluster

REASON = "broker id 2 belongs to data directory d-1; stop that process"


def found(cluster: DescribedCluster, scope: Scope | None = None) -> tuple[Finding, ...]:
    return explain(cluster.observed(scope))


def contested(cause: str = "broker_id_in_use") -> DescribedCluster:
    cluster = DescribedCluster()
    cluster.partition("sea/0")
    cluster.registered[2] = replace(
        cluster.registered[2], directory_id="d-1", host="north", data_dir="/data/one"
    )
    cluster.rejected_starts.append(
        RejectedStart(
            2, NOW_MS - 5_000, cause, REASON, "10.0.0.9:7500", "south", "/data/two", "d-2"
        )
    )
    return cluster


def test_a_contested_id_names_both_processes_and_both_directories() -> None:
    (finding,) = found(contested())
    assert (finding.cause, finding.broker) == (causes.BROKER_ID_CONTESTED, 2)
    assert finding.severity == causes.WARNING
    first, second = finding.evidence
    assert "127.0.0.1:7502, data directory /data/one (d-1) on north" in first
    assert "10.0.0.9:7500, data directory /data/two (d-2) on south" in second
    assert REASON in second
    assert "--replace-directory d-1" in finding.next_step


def test_a_process_that_waits_for_the_lease_is_reported_as_waiting() -> None:
    (finding,) = found(contested("waits_for_lease"))
    assert "the second one waits for the registration of the first one to end" in finding.summary
    step = finding.next_step
    assert "the waiting process at 10.0.0.9:7500 with data_dir /data/two on south" in step
    assert "or the registered one at 127.0.0.1:7502" in step


def test_other_rejected_starts_contest_no_id() -> None:
    assert found(contested("disk")) == ()


def test_a_departed_and_rejected_broker_cannot_start() -> None:
    """For example when its disk is not mounted: no two processes claim the id."""
    cluster = contested()
    cluster.kill(2, ago_ms=6_000)
    [finding] = [f for f in found(cluster) if f.severity != causes.INFO]
    assert (finding.cause, finding.broker) == (causes.BROKER_CANNOT_START, 2)
    assert REASON in finding.summary


def test_a_process_that_waits_for_the_id_of_a_dead_broker_is_named() -> None:
    """It takes the id as soon as that is free, so the operator who restarts the first process must
    be informed."""
    cluster = contested("waits_for_lease")
    cluster.kill(2, ago_ms=100)
    finding = next(f for f in found(cluster) if f.cause == causes.BROKER_ID_CONTESTED)
    waits = "broker 2 is gone, and another process with its id waits to replace it"
    assert finding.summary == waits
    first, second = finding.evidence
    assert first == "no process is registered as broker 2 now, and the last one is gone"
    assert "10.0.0.9:7500, data directory /data/two (d-2) on south" in second
    assert "the waiting process at 10.0.0.9:7500" in finding.next_step.lower()
    assert causes.REPLICA_DEAD in {f.cause for f in found(cluster)}


def test_a_process_that_waits_for_the_id_of_a_stopped_broker_is_named() -> None:
    cluster = contested("waits_for_lease")
    cluster.kill(2, cause="broker_stopped", ago_ms=100)
    assert causes.BROKER_ID_CONTESTED in {f.cause for f in found(cluster)}


def test_a_process_that_was_rejected_before_the_broker_crashed_is_named() -> None:
    """It is not the cause of the broker's absence, but the operator has to start the right one."""
    cluster = contested()
    cluster.kill(2, ago_ms=1_000)
    by_cause = {f.cause: f for f in found(cluster)}
    assert causes.BROKER_CANNOT_START not in by_cause
    assert causes.REPLICA_DEAD in by_cause
    finding = by_cause[causes.BROKER_ID_CONTESTED]
    assert finding.summary.endswith("another process with its id was rejected while it ran")
    assert "/data/two (d-2) on south" in finding.evidence[1]
    assert finding.next_step.startswith("Start broker 2 again with its own data directory.")


def wrong_id(directory_id: str) -> DescribedCluster:
    """Broker 2's directory was started as broker 4."""
    cluster = contested()
    cluster.rejected_starts[:] = [
        RejectedStart(
            4,
            NOW_MS - 5_000,
            "data_directory",
            "/data/one is of broker 2: set broker_id = 2",
            directory_id=directory_id,
        )
    ]
    return cluster


def test_a_wrong_broker_id_is_reported_as_such() -> None:
    [finding] = found(wrong_id("d-9"))
    assert (finding.cause, finding.broker) == (causes.BROKER_CANNOT_START, 4)
    assert "has never been part of the cluster (/data/one is of broker 2" in finding.summary
    assert "its broker_id if 4 is not meant" in finding.next_step
    assert "catches up" not in finding.next_step


def test_a_wrong_broker_id_is_no_finding_after_its_directory_runs_under_its_own_id() -> None:
    assert found(wrong_id("d-1")) == ()


def test_a_directory_of_another_broker_hides_no_fault_of_a_known_broker() -> None:
    cluster = wrong_id("d-1")
    cluster.rejected_starts[:] = [replace(cluster.rejected_starts[0], broker_id=3)]
    cluster.kill(3, ago_ms=6_000)
    [finding] = [f for f in found(cluster) if f.severity != causes.INFO]
    assert (finding.cause, finding.broker) == (causes.BROKER_CANNOT_START, 3)


def test_a_paused_process_without_registration_contests_its_id() -> None:
    cluster = contested()
    cluster.pause(2)
    del cluster.registered[2]
    finding = next(f for f in found(cluster) if f.cause == causes.BROKER_ID_CONTESTED)
    assert "no process is registered as broker 2 now, and one is running" in finding.evidence


def test_a_rejection_before_an_orderly_stop_does_not_explain_the_absence() -> None:
    cluster = contested()
    cluster.kill(2, cause="broker_stopped", ago_ms=1_000)
    assert {f.cause for f in found(cluster)} <= {causes.BROKER_STOPPED}


@pytest.mark.parametrize("same", ["directory", "place"])
def test_a_process_that_now_runs_as_another_broker_contests_no_id(same: str) -> None:
    cluster = contested()
    other = replace(cluster.registered[3], data_dir="/data/two")
    cluster.registered[3] = (
        replace(other, directory_id="d-2") if same == "directory" else replace(other, host="south")
    )
    assert found(cluster) == ()


def test_a_restored_directory_is_no_longer_contested() -> None:
    cluster = contested()
    cluster.registered[2] = replace(
        cluster.registered[2], directory_id="d-1", host="south", data_dir="/data/two"
    )
    assert found(cluster) == ()


def test_a_rejected_process_that_does_not_retry_contests_the_id_for_minutes() -> None:
    cluster = contested()
    old = replace(cluster.rejected_starts[0], at_ms=NOW_MS - CONTESTED_MS - 1)
    cluster.rejected_starts[:] = [old]
    assert found(cluster) == ()
    cluster.rejected_starts[:] = [replace(old, cause="waits_for_lease")]
    assert [f.cause for f in found(cluster)] == [causes.BROKER_ID_CONTESTED]


def test_a_contested_id_concerns_only_its_broker() -> None:
    cluster = contested()
    assert [f.broker for f in found(cluster, Scope(broker=2))] == [2]
    assert found(cluster, Scope(broker=1)) == ()


def test_a_directory_that_is_not_intact_is_reported_with_the_reason() -> None:
    cluster = DescribedCluster()
    cluster.partition("sea/0")
    cluster.registered[2] = replace(
        cluster.registered[2], directory_id="d-1", not_intact_reason="it is a copy"
    )
    (finding,) = found(cluster)
    assert (finding.cause, finding.severity) == (causes.DIRECTORY_NOT_INTACT, causes.INFO)
    assert "it is a copy" in finding.summary
