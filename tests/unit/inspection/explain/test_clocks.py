"""Clock differences, and a clock in doubt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.explain.clocks import MAX_OWN_TIME_MS, MAX_SKEW_MS
from tidelog.inspection.explain.observation import ReadClock
from tidelog.inspection.state_reports import ClockDoubt, Finding, HeardClock, RejectedRequests
from unit.inspection.explain.described import DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def hears(cluster: DescribedCluster, broker_id: int, **skews_ms: int) -> None:
    """`b2=-7_000`: broker 2's clock is behind by this much."""
    clocks = tuple(HeardClock(int(name[1:]), skew) for name, skew in skews_ms.items())
    cluster.brokers[broker_id] = replace(cluster.brokers[broker_id], clocks=clocks)


def test_small_clock_differences_are_no_finding(cluster: DescribedCluster) -> None:
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
    assert "broker-1 received the clock of broker 2 1 min 30 s ahead of its own" in text_of(
        findings[0]
    )
    assert "Correct the clock of broker 2 (`chronyc tracking`" in findings[0].next_step
    assert causes_of(cluster.explain(broker=2)) == ["clock_skew"]
    assert cluster.explain(topic="sea") == []


def test_a_broker_that_sees_all_others_behind_is_ahead(
    cluster: DescribedCluster,
) -> None:
    hears(cluster, 2, b1=-7_000, b3=-7_010)
    findings = cluster.explain()
    assert [finding.broker for finding in findings] == [2]
    assert "7.0 s ahead of" in findings[0].summary


@pytest.mark.parametrize("behind_ms", [61_000, 30_000])
def test_a_leader_that_is_behind_is_named_with_its_skew_and_the_effects(
    cluster: DescribedCluster, behind_ms: int
) -> None:
    hears(cluster, 1, b2=behind_ms, b3=behind_ms + 10)
    findings = cluster.explain()
    assert [finding.broker for finding in findings] == [1]
    assert "behind those of the other brokers" in findings[0].summary
    is_dated_by_others = "dates what it leads by the other brokers' time" in text_of(findings[0])
    assert is_dated_by_others is (behind_ms > MAX_OWN_TIME_MS)
    assert "Correct the clock of broker 1" in findings[0].next_step


def test_of_two_differing_clocks_neither_is_blamed(cluster: DescribedCluster) -> None:
    hears(cluster, 1, b2=-7_000)
    findings = cluster.explain()
    assert [finding.broker for finding in findings] == [-1]
    assert "the clocks of brokers 1 and 2 differ" in findings[0].summary


def test_a_broker_in_doubt_about_its_clock_says_why_it_deletes_nothing(
    cluster: DescribedCluster,
) -> None:
    doubt = ClockDoubt("it has jumped ahead of monotonic time", 3_600_000, 75_000)
    cluster.brokers[2] = replace(cluster.brokers[2], clock_doubt=doubt)
    findings = cluster.explain()
    assert causes_of(findings) == ["clock_in_doubt"]
    assert findings[0].broker == 2
    assert "deletes nothing for its age" in findings[0].summary
    assert "jumped ahead of monotonic time, by 1 h 0 min; it has been in doubt for 1 min 15 s" in (
        text_of(findings[0])
    )
    assert "once another broker whose clock has not jumped" in findings[0].next_step
    assert "for 10 minutes after a reboot" in findings[0].next_step


YEAR_MS = 365 * 24 * 3_600_000


def answers_carry(cluster: DescribedCluster, **ahead_ms: int) -> None:
    """`c1=7_000`: the clock of controller 1 is ahead of that of the calling process; each was
    read within 20 ms."""
    roles = {"b": "broker", "c": "controller"}
    cluster.clocks = [
        ReadClock(roles[name[0]], int(name[1:]), ahead, ahead + 20)
        for name, ahead in ahead_ms.items()
    ]


@pytest.mark.parametrize(
    ("ahead_ms", "how"), [(YEAR_MS, "8760 h 0 min ahead of"), (-7_000, "7.0 s behind")]
)
def test_a_controller_whose_clock_differs_from_most_is_named(
    cluster: DescribedCluster, ahead_ms: int, how: str
) -> None:
    answers_carry(cluster, b1=0, b2=10, b3=-10, c1=ahead_ms, c2=0)
    [skewed] = cluster.explain()
    assert (skewed.cause, skewed.severity) == ("clock_skew", "warning")
    assert skewed.summary == f"the clock of controller 1 is {how} those of most other services"
    assert "Correct the clock of controller 1 (`chronyc tracking`" in skewed.next_step


def test_several_controllers_of_one_machine_with_a_wrong_clock_are_named(
    cluster: DescribedCluster,
) -> None:
    answers_carry(cluster, b1=0, b2=10, b3=-10, c1=YEAR_MS, c2=YEAR_MS)
    assert causes_of(cluster.explain()) == ["clock_skew", "clock_skew"]


def test_the_clock_of_the_calling_process_is_not_that_of_a_service(
    cluster: DescribedCluster,
) -> None:
    answers_carry(cluster, b1=60_000, b2=60_010, b3=60_000, c1=60_000, c2=60_000)
    assert cluster.explain() == []


def test_a_controller_that_runs_explain_is_named_for_its_own_clock(
    cluster: DescribedCluster,
) -> None:
    answers_carry(cluster, b1=-60_000, b2=-60_000, b3=-60_000, c2=-60_000)
    cluster.clocks.append(ReadClock("controller", 1, 0, 0, is_own=True))
    [skewed] = cluster.explain()
    assert "the clock of controller 1 is 60.0 s ahead of those of most" in skewed.summary
    assert "the machine that runs explain" not in text_of(skewed)


def test_a_late_answer_is_no_evidence_of_a_wrong_clock(cluster: DescribedCluster) -> None:
    answers_carry(cluster, b1=0, b2=0, b3=0)
    cluster.clocks.append(ReadClock("controller", 1, -9_000, 20))
    assert cluster.explain() == []


def rejects_events(cluster: DescribedCluster, reason: str) -> Finding:
    rejected = RejectedRequests("__state_changes", reason, 4, 3_000, "31535999977 ms ahead")
    for broker_id in (1, 2, 3):
        broker = cluster.brokers[broker_id]
        cluster.brokers[broker_id] = replace(broker, rejected_requests=(rejected,))
    return found(cluster.explain(), "requests_rejected")


def test_events_of_a_controller_with_a_fast_clock_are_rejected_for_it(
    cluster: DescribedCluster,
) -> None:
    answers_carry(cluster, b1=0, b2=0, b3=0, c1=YEAR_MS, c2=0)
    rejected = rejects_events(cluster, "INVALID_TIMESTAMP")
    assert "events of controller-1 are rejected repeatedly: 12 requests" in rejected.summary
    assert "Correct the clock of controller-1" in rejected.next_step
    assert rejected.because == ("clock_skew",)
    assert "timestamp_max_ahead_ms" not in text_of(rejected)


@pytest.mark.parametrize("reason", ["INVALID_TIMESTAMP", "BATCH_TOO_LARGE"])
def test_no_client_is_blamed_for_an_internal_topic(cluster: DescribedCluster, reason: str) -> None:
    rejected = rejects_events(cluster, reason)
    assert "events of the cluster's own services are rejected" in rejected.summary
    assert "state_changes_held" in rejected.next_step
    assert "alter-config" not in text_of(rejected)
    assert "clients of" not in text_of(rejected)


def test_a_client_with_a_fast_clock_is_named_with_its_topic(cluster: DescribedCluster) -> None:
    cluster.partition("bay/0")
    message = "sea/0 takes records up to 3600000 ms ahead; this one is 7200000 ms ahead"
    timestamps = RejectedRequests("sea", "INVALID_TIMESTAMP", 4, 3_000, message)
    cluster.brokers[1] = replace(cluster.brokers[1], rejected_requests=(timestamps,))
    [rejected] = cluster.explain()
    assert (rejected.cause, rejected.severity) == ("requests_rejected", "warning")
    assert (rejected.topic, rejected.broker, rejected.because) == ("sea", 1, ())
    assert rejected.summary == (
        "clients of topic 'sea' are rejected repeatedly: 4 requests within the last minute by "
        "broker-1, because of INVALID_TIMESTAMP"
    )
    assert f'the last 3.0 s ago: "{message}"' in text_of(rejected)
    assert rejected.next_step == (
        "Correct the clock of the client, or raise timestamp_max_ahead_ms of topic sea."
    )
    assert causes_of(cluster.explain(topic="sea")) == ["requests_rejected"]
    assert cluster.explain(topic="bay") == []
