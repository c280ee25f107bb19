"""Services that crash again and again are reported between two crashes, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.controller_reports import ServiceCrashes
from tidelog.inspection.state_reports import RecentElections, RejectedStart
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0", (3, 1))
    described.partition("bay/0", (1, 2))
    return described


def crashed(
    role: str = "broker", service_id: int = 3, count: int = 5, reason: str = ""
) -> ServiceCrashes:
    address = "127.0.0.1:7600" if role == "gateway" else ""
    return ServiceCrashes(role, service_id, address, count, 52_000, 4_000, reason)


def test_a_broker_in_a_crash_loop_is_named_while_it_runs(cluster: DescribedCluster) -> None:
    cluster.crashes.append(crashed())
    [loop] = cluster.explain()
    assert (loop.cause, loop.severity, loop.broker) == ("crash_loop", "warning", 3)
    assert loop.summary == "broker 3 has crashed 5 times within the last 52.0 s"
    assert "left no reason" in text_of(loop)
    assert "log of broker 3, and the exit status that its supervisor" in loop.next_step
    assert cluster.explain(broker=3) == cluster.explain("sea", 0) == [loop]
    assert cluster.explain("bay") == cluster.explain(broker=1) == []


def test_the_reason_of_the_last_crash_is_named_if_the_process_left_one(
    cluster: DescribedCluster,
) -> None:
    cluster.crashes.append(crashed())
    left = RejectedStart(3, NOW_MS - 4_500, "fault", "MemoryError in the log", has_run_since=True)
    cluster.rejected_starts.append(left)
    assert "MemoryError in the log" in text_of(found(cluster.explain(), "crash_loop"))
    cluster.rejected_starts[0] = replace(left, at_ms=NOW_MS - 900_000)
    assert "MemoryError" not in text_of(found(cluster.explain(), "crash_loop"))


@pytest.mark.parametrize(
    ("role", "service_id", "named"),
    [("controller", 2, "controller 2"), ("gateway", -1, "the gateway at 127.0.0.1:7600")],
)
def test_controllers_and_gateways_are_named_too(
    cluster: DescribedCluster, role: str, service_id: int, named: str
) -> None:
    cluster.crashes.append(crashed(role, service_id, reason="no memory"))
    loop = found(cluster.explain(), "crash_loop")
    assert loop.summary.startswith(f"{named} has crashed 5 times")
    assert "no memory" in text_of(loop)
    assert cluster.explain(broker=2) == []


def test_a_service_that_was_killed_twice_is_well(cluster: DescribedCluster) -> None:
    cluster.crashes += [crashed(count=2), crashed("controller", 1, count=1)]
    assert cluster.explain() == []


def test_leaders_that_change_because_of_a_crash_loop_are_no_finding_of_their_own(
    cluster: DescribedCluster,
) -> None:
    for broker_id, broker in cluster.brokers.items():
        elections = RecentElections(0, 0, 9, "sea", 0, 120_000, 3_000)
        cluster.brokers[broker_id] = replace(broker, elections=elections)
    assert causes_of(cluster.explain()) == ["repeated_elections"]
    cluster.crashes.append(crashed())
    assert causes_of(cluster.explain()) == ["crash_loop"]
