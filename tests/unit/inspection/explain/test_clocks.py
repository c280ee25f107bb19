"""Clocks that differ, and a clock in doubt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.explain.clocks import MAX_OWN_TIME_MS, MAX_SKEW_MS
from tidelog.inspection.model import ClockDoubt, HeardClock
from unit.inspection.explain.described import DescribedCluster, causes_of, said


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def hears(cluster: DescribedCluster, broker_id: int, **skews_ms: int) -> None:
    """`b2=-7_000`: broker 2's clock is behind by so much."""
    clocks = tuple(HeardClock(int(name[1:]), skew) for name, skew in skews_ms.items())
    cluster.brokers[broker_id] = replace(cluster.brokers[broker_id], clocks=clocks)


def test_clocks_that_nearly_agree_are_no_finding(cluster: DescribedCluster) -> None:
    hears(cluster, 1, b2=MAX_SKEW_MS, b3=-MAX_SKEW_MS)
    assert cluster.explain() == []


def test_the_broker_whose_clock_differs_from_most_is_named(cluster: DescribedCluster) -> None:
    hears(cluster, 1, b2=90_000, b3=10)
    hears(cluster, 3, b1=-10, b2=90_010)
    findings = cluster.explain()
    assert causes_of(findings) == ["clock_skew"]
    assert findings[0].broker == 2
    assert findings[0].summary == (
        "the clock of broker 2 is 1 min 30 s ahead of those of the other brokers"
    )
    assert "broker-1 heard the clock of broker 2 1 min 30 s ahead of its own" in said(findings[0])
    assert "Put the clock of broker 2 right (`chronyc tracking`" in findings[0].next_step
    assert causes_of(cluster.explain(broker=2)) == ["clock_skew"]
    assert cluster.explain(topic="sea") == []


def test_the_broker_that_hears_all_others_behind_is_the_one_that_is_ahead(
    cluster: DescribedCluster,
) -> None:
    hears(cluster, 2, b1=-7_000, b3=-7_010)
    findings = cluster.explain()
    assert [finding.broker for finding in findings] == [2]
    assert "7.0 s ahead of" in findings[0].summary


@pytest.mark.parametrize("behind_ms", [61_000, 30_000])
def test_a_leader_that_is_behind_is_named_with_its_skew_and_what_it_does(
    cluster: DescribedCluster, behind_ms: int
) -> None:
    hears(cluster, 1, b2=behind_ms, b3=behind_ms + 10)
    findings = cluster.explain()
    assert [finding.broker for finding in findings] == [1]
    assert "behind those of the other brokers" in findings[0].summary
    is_dated_by_others = "dates what it leads by the other brokers' time" in said(findings[0])
    assert is_dated_by_others is (behind_ms > MAX_OWN_TIME_MS)
    assert "Put the clock of broker 1 right" in findings[0].next_step


def test_of_two_clocks_neither_is_accused(cluster: DescribedCluster) -> None:
    hears(cluster, 1, b2=-7_000)
    findings = cluster.explain()
    assert [finding.broker for finding in findings] == [-1]
    assert "the clocks of brokers 1 and 2 differ" in findings[0].summary


def test_a_broker_that_doubts_its_clock_says_why_it_deletes_nothing(
    cluster: DescribedCluster,
) -> None:
    doubt = ClockDoubt("it has jumped ahead of monotonic time", 3_600_000, 75_000)
    cluster.brokers[2] = replace(cluster.brokers[2], clock_doubt=doubt)
    findings = cluster.explain()
    assert causes_of(findings) == ["clock_in_doubt"]
    assert findings[0].broker == 2
    assert "deletes nothing for its age" in findings[0].summary
    assert "jumped ahead of monotonic time, by 1 h 0 min; it has been in doubt for 1 min 15 s" in (
        said(findings[0])
    )
    assert "once another broker that has not jumped" in findings[0].next_step
