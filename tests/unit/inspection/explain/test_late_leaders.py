"""Leaders that are alive and answer late or not at all: no scope with one of their partitions is
well."""

from __future__ import annotations

import pytest

from tidelog.inspection.explain import Listening
from tidelog.inspection.resource_pressures import BrokerPressure
from tidelog.inspection.state_reports import HeardBroker
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found


@pytest.fixture
def cluster() -> DescribedCluster:
    """Broker 2 leads sea/0 and follows in sea/1 and bay/0."""
    described = DescribedCluster()
    described.partition("sea/0", (2, 1))
    described.partition("sea/1", (1, 2))
    described.partition("bay/0", (3, 2))
    described.partition("cay/0", (1, 3))
    return described


def short_of(cluster: DescribedCluster, resource: str, used: int, limit: int) -> None:
    cluster.pressures.append(BrokerPressure(2, resource, used, limit, NOW_MS - 8_000, ""))


SHORTAGES = [
    ("cpu", "cpu_starved", 9_000, 10_000),
    ("open_files", "open_files", 1_020, 1_024),
    ("connections", "many_connections", 5_000, 10_000),
]


@pytest.mark.parametrize(("resource", "cause", "used", "limit"), SHORTAGES)
@pytest.mark.parametrize("listening", [Listening.BUSY, Listening.SILENT])
def test_a_short_leader_that_does_not_answer_costs_its_partitions_availability(
    cluster: DescribedCluster,
    listening: Listening,
    resource: str,
    cause: str,
    used: int,
    limit: int,
) -> None:
    short_of(cluster, resource, used, limit)
    cluster.silence(2, listening)
    for findings in (cluster.explain(), cluster.explain("sea", 0), cluster.explain(broker=2)):
        late = found(findings, cause)
        assert (late.severity, late.broker) == ("critical", 2)
        assert late.partitions == ("sea/0",)
        assert "requests for 1 partition that it leads are late" in late.summary


def test_a_short_leader_that_answers_is_a_warning_that_names_its_partitions(
    cluster: DescribedCluster,
) -> None:
    short_of(cluster, "cpu", 9_000, 10_000)
    for findings in (cluster.explain(), cluster.explain("sea", 0)):
        late = found(findings, "cpu_starved")
        assert (late.severity, late.partitions) == ("warning", ("sea/0",))


@pytest.mark.parametrize(
    ("listening", "cause"),
    [(Listening.BUSY, "broker_busy"), (Listening.SILENT, "broker_unreachable")],
)
def test_a_silent_leader_is_critical_once_its_followers_get_no_answer(
    cluster: DescribedCluster, listening: Listening, cause: str
) -> None:
    cluster.silence(2, listening)
    for findings in (cluster.explain(), cluster.explain("sea", 0)):
        late = found(findings, cause)
        assert (late.severity, late.partitions) == ("warning", ("sea/0",))
    cluster.unheard(2)
    cluster.hears(1, HeardBroker(2, unanswered_ms=4_000))
    for findings in (cluster.explain(), cluster.explain("sea", 0)):
        assert found(findings, cause).severity == "critical"


def test_the_roots_of_a_follower_in_the_isr_belong_to_the_scope(
    cluster: DescribedCluster,
) -> None:
    short_of(cluster, "memory", 95, 100)
    assert causes_of(cluster.explain("sea", 1)) == ["memory_short"]
    assert causes_of(cluster.explain("bay")) == ["memory_short"]
    assert cluster.explain("cay", 0) == []
