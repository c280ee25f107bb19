"""Broker ids that two data directories claim, and directories that lost data."""

from __future__ import annotations

from dataclasses import replace

from tidelog.inspection.explain import causes, explain
from tidelog.inspection.model import Finding, RejectedStart, Scope
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


def test_a_process_that_waits_for_the_lease_is_said_to_wait() -> None:
    (finding,) = found(contested("waits_for_lease"))
    assert "the second one waits for the registration to end" in finding.summary


def test_other_rejected_starts_contest_no_id() -> None:
    assert found(contested("disk")) == ()


def test_an_unregistered_id_is_said_to_be_so() -> None:
    cluster = contested()
    cluster.kill(2)
    finding = next(f for f in found(cluster) if f.cause == causes.BROKER_ID_CONTESTED)
    assert "no process is registered as broker 2 now" in finding.evidence


def test_a_contested_id_concerns_its_broker_alone() -> None:
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
