"""The figures of a sample: what is not known completely is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelog.client.descriptions import TopicDescription
from tidelog.inspection.state_reports import FollowerProgress, LeaderState, ServiceState
from tidelog.inspection.topic_sizes import ReplicaReports
from tidelog_admin_api.history_figures import (
    Key,
    Reported,
    SampledFigures,
    broker_key,
    figures_of,
    lag_key,
    topic_key,
)
from tidelog_admin_api.overview import summary_of
from unit.admin_api.fakes import partition, topic
from unit.inspection.test_topic_sizes import NOW_MS, broker, replica, states
from unit.loop_turns import in_one_turn

SEA = replace(
    topic("sea", partition(0, replicas=(1, 2)), partition(1, leader=2, replicas=(2, 1))),
    topic_id="id-sea",
)
RECORDS, BYTES = topic_key("records_per_second", "id-sea"), topic_key("bytes_per_second", "id-sea")


def reported(found: list[ServiceState], topics: tuple[TopicDescription, ...] = (SEA,)) -> Reported:
    return Reported(topics, in_one_turn(summary_of(topics)).counts, found, ReplicaReports(found))


def between(later: list[ServiceState], now: TopicDescription = SEA) -> SampledFigures:
    return figures_of(reported(states()), reported(later, (now,)))


def written(**differs: Any) -> list[ServiceState]:
    """Two seconds later, each leader has 40 records and 1,000 bytes more."""
    grown: dict[str, Any] = {"log_end_offset": 150, "size_bytes": 6_000}
    return states(NOW_MS + 2_000, **(grown | differs))


def test_a_topic_and_the_cluster_have_the_rate_of_all_leaders() -> None:
    figures = between(written()).figures
    assert (figures[RECORDS], figures[BYTES]) == (40, 1_000)
    assert (figures[("records_per_second",)], figures[("bytes_per_second",)]) == (40, 1_000)


def test_the_first_sample_has_sizes_and_no_rates() -> None:
    figures = figures_of(None, reported(states())).figures
    assert figures[topic_key("total_bytes", "id-sea")] == 20_000
    assert [key for key in figures if key[0] == "records_per_second"] == []


def test_a_silent_broker_makes_a_gap_and_no_lower_line() -> None:
    silent = between(written()[:1])
    known = set(silent.figures)
    assert known.isdisjoint({RECORDS, BYTES, ("records_per_second",), ("max_lag_records",)})
    assert known.isdisjoint({topic_key(name, "id-sea") for name in ("leader_bytes", "total_bytes")})
    assert not any(key[1:] == ("broker", 2) for key in known)
    # A list shows what is known, and says what is missing.
    assert silent.sizes["id-sea"].leader_bytes == 6_000
    assert silent.rates["id-sea"].partitions_unmeasured == 1


def test_a_log_that_became_shorter_is_a_gap_and_no_negative_rate() -> None:
    figures = between(written(log_end_offset=60)).figures
    assert RECORDS not in figures
    assert BYTES not in figures


def test_a_topic_that_was_created_again_has_no_rate_yet() -> None:
    again = replace(SEA, topic_id="id-again")
    later = [
        broker(1, replica(0, leads=True, topic_id="id-again", log_end_offset=5)),
        broker(2, replica(1, leads=True, topic_id="id-again", log_end_offset=5)),
    ]
    figures = between(later, again).figures
    assert not any(key[0] == "records_per_second" and len(key) > 1 for key in figures)
    # Topics of both samples make up the rate of the cluster: there is none.
    assert figures[("records_per_second",)] == 0


def test_a_partition_without_a_leader_counts_as_not_written() -> None:
    lost = replace(SEA, partitions=(SEA.partitions[0], replace(SEA.partitions[1], leader=-1)))
    figures = between(written()[:1], lost).figures
    assert figures[RECORDS] == 20


def test_bytes_are_estimated_while_old_segments_are_deleted() -> None:
    figures = between(written(log_start_offset=50)).figures
    # 20 records a second in each log, of 60 bytes each.
    assert figures[BYTES] == 2 * 20 * 60


def test_internal_topics_do_not_count_for_the_cluster() -> None:
    internal = replace(SEA, name="__state_changes")
    figures = between(written(), internal).figures
    assert (figures[RECORDS], figures[("records_per_second",)]) == (40, 0)


def lagging(lag: int) -> list[ServiceState]:
    leader = LeaderState(followers=[FollowerProgress(2, lag_records=lag)])
    led = replica(0, leads=True, leader=leader)
    return [broker(1, led), broker(2, replica(1, leads=True))]


def test_the_lag_of_each_follower_is_known_and_the_highest_of_topic_and_cluster() -> None:
    sampled = figures_of(None, reported(lagging(7)))
    assert dict(sampled.lags) == {lag_key("id-sea", 0, 2): 7}
    assert sampled.figures[topic_key("max_lag_records", "id-sea")] == 7
    assert sampled.figures[("max_lag_records",)] == 7


def test_lags_are_known_of_partitions_whose_leader_reports_them() -> None:
    sampled = figures_of(None, reported(lagging(7)[:1]))
    assert dict(sampled.lags) == {lag_key("id-sea", 0, 2): 7}
    assert ("max_lag_records",) not in sampled.figures


def test_a_topic_without_a_leader_does_not_hide_the_highest_lag_of_others() -> None:
    lost = replace(topic("sky", partition(leader=-1)), topic_id="id-sky")
    figures = figures_of(None, reported(lagging(7), (SEA, lost))).figures
    assert figures[("max_lag_records",)] == 7
    assert topic_key("max_lag_records", "id-sky") not in figures


def test_a_lag_that_the_leader_does_not_know_is_left_out() -> None:
    assert dict(figures_of(None, reported(lagging(-1))).lags) == {}


def test_a_broker_has_its_data_and_what_was_appended_to_all_its_logs() -> None:
    later = written()
    figures = between(later).figures
    assert figures[broker_key("log_bytes", 1)] == 11_000
    assert figures[broker_key("bytes_per_second", 1)] == 500


def test_a_broker_that_starts_has_no_figures_of_its_replicas() -> None:
    later = written()
    starting = later[0].broker
    assert starting is not None
    later[0] = replace(later[0], broker=replace(starting, has_full_state=False))
    known: set[Key] = set(between(later).figures)
    assert broker_key("log_bytes", 1) not in known
    assert broker_key("log_bytes", 2) in known


def test_unknown_counts_are_left_out() -> None:
    stale = replace(reported(states()), counts=None)
    assert ("under_replicated",) not in figures_of(None, stale).figures
