"""Sizes and rates of topics: what no broker reports is unknown, and not 0."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.inspection.state_reports import (
    BrokerState,
    FollowerState,
    LeaderState,
    ReplicaState,
    ServiceState,
    StoreHealth,
)
from tidelog.inspection.topic_sizes import TopicRate, TopicSize, topic_rates, topic_sizes

STARTED_MS, NOW_MS = 10, 50_000


@dataclass
class Assigned:
    partition: int
    replicas: tuple[int, ...]


@dataclass
class Topic:
    topic_id: str
    partitions: list[Assigned] = field(default_factory=list)


SEA = Topic("id-sea", [Assigned(0, (1, 2)), Assigned(1, (2, 1))])


def replica(
    partition: int, *, leads: bool, topic_id: str = "id-sea", **differs: Any
) -> ReplicaState:
    whole = ReplicaState(
        "sea",
        topic_id,
        partition,
        "leader" if leads else "follower",
        leader_epoch=4,
        revision=9,
        log_start_offset=10,
        log_end_offset=110,
        size_bytes=5_000,
        leader=LeaderState() if leads else None,
        follower=None if leads else FollowerState(1),
    )
    return replace(whole, **differs)


def broker(broker_id: int, *replicas: ReplicaState, now_ms: int = NOW_MS) -> ServiceState:
    state = BrokerState(1, "running", True, 3, replicas=replicas)
    return ServiceState(
        "broker", broker_id, "", "", STARTED_MS, now_ms, StoreHealth(), broker=state
    )


def states(now_ms: int = NOW_MS, **differs: Any) -> list[ServiceState]:
    """Broker 1 leads partition 0, and broker 2 partition 1. `differs`: fields of both leaders."""
    return [
        broker(1, replica(0, leads=True, **differs), replica(1, leads=False), now_ms=now_ms),
        broker(2, replica(0, leads=False), replica(1, leads=True, **differs), now_ms=now_ms),
    ]


def test_records_and_bytes_are_those_of_leaders_and_the_total_has_all_replicas() -> None:
    assert topic_sizes([SEA], states()) == {"id-sea": TopicSize(200, 10_000, 20_000, 0, 0)}


def test_what_a_silent_broker_holds_is_counted_as_unknown() -> None:
    assert topic_sizes([SEA], states()[:1]) == {"id-sea": TopicSize(100, 5_000, 10_000, 1, 2)}


def test_without_any_report_nothing_is_known() -> None:
    assert topic_sizes([SEA], []) == {"id-sea": TopicSize(None, None, None, 2, 4)}


def test_an_empty_topic_has_a_size_of_zero() -> None:
    empty = states(log_end_offset=10, size_bytes=0)
    assert topic_sizes([SEA], empty)["id-sea"].approximate_records == 0


def test_replicas_of_an_earlier_topic_of_the_name_do_not_count() -> None:
    earlier = [broker(1, replica(0, leads=True, topic_id="id-before"))]
    assert topic_sizes([SEA], earlier)["id-sea"].total_bytes is None


def test_of_two_leaders_the_one_in_the_newer_epoch_counts() -> None:
    old, new = replica(0, leads=True), replica(0, leads=True, leader_epoch=5, log_end_offset=60)
    one = Topic("id-sea", [Assigned(0, (1, 2))])
    assert topic_sizes([one], [broker(1, old), broker(2, new)])["id-sea"].approximate_records == 50


def test_a_rate_is_what_leaders_appended_by_the_clock_of_each_broker() -> None:
    later = states(NOW_MS + 2_000, log_end_offset=150, size_bytes=6_000)
    assert topic_rates([SEA], states(), later) == {"id-sea": TopicRate(40.0, 1_000.0, 0)}


def test_a_partition_with_another_leader_is_not_measured() -> None:
    later = states(NOW_MS + 2_000, log_end_offset=150, leader_epoch=5)
    assert topic_rates([SEA], states(), later) == {"id-sea": TopicRate(None, None, 2)}


def test_a_broker_that_has_restarted_is_not_measured() -> None:
    later = states(NOW_MS + 2_000, log_end_offset=150)
    later[0] = replace(later[0], started_at_ms=NOW_MS)
    rate = topic_rates([SEA], states(), later)["id-sea"]
    assert (rate.records_per_second, rate.partitions_unmeasured) == (20.0, 1)


def test_bytes_are_not_measured_while_old_segments_are_deleted() -> None:
    later = states(NOW_MS + 2_000, log_start_offset=50, log_end_offset=150, size_bytes=1_000)
    assert topic_rates([SEA], states(), later) == {"id-sea": TopicRate(40.0, None, 0)}


def test_a_log_that_became_shorter_is_not_measured() -> None:
    later = states(NOW_MS + 2_000, log_end_offset=60)
    assert topic_rates([SEA], states(), later) == {"id-sea": TopicRate(None, None, 2)}


def test_a_broker_that_reported_once_is_not_measured() -> None:
    later = states(NOW_MS + 2_000, log_end_offset=150)
    rate = topic_rates([SEA], states()[1:], later)["id-sea"]
    assert (rate.records_per_second, rate.partitions_unmeasured) == (20.0, 1)
