"""Metrics of a broker's replicas: which are aggregated, and which have a series each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.model import NO_LEADER, Acks, TopicPartition
from tidelog_broker.core.partition.exchange import FetchPosition
from tidelog_broker.core.partition.isr import SessionTime
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.metrics.replica_metrics import HighWatermarkChecks, ReplicaMetrics
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving
from tidelog_runtime.telemetry.metrics.broker_catalogue import (
    BROKER_METRICS,
    MAX_LAG_SERIES,
    MAX_PARTITION_SERIES,
    MAX_TOPIC_SERIES,
)
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from unit.broker.fake_log import TOPIC_ID, FakeLog, Notes, epoch_of, sent, state

MANY = 10_000
LEADING_SINCE_MS = 1_000
APPENDED_WALL_MS = 500_000


def replica(
    number: int = 0, of: LeaderAndIsr | None = None, *, records: int = 0, topic: str = "sea"
) -> Partition:
    """A replica on broker 1, by default led by it in the epoch since 1000."""
    partition = Partition(
        TopicPartition(topic, number), TOPIC_ID, 1, FakeLog(), high_watermark=0, listener=Notes()
    )
    partition.take(of or state(), 10, broker_epoch=epoch_of(1), now_ms=LEADING_SINCE_MS)
    if records:
        append(partition, records)
    return partition


def append(partition: Partition, records: int) -> None:
    partition.append([sent() for _ in range(records)], Acks.LEADER, APPENDED_WALL_MS)


def fetch(partition: Partition, follower: int, offset: int, now_ms: int) -> None:
    position = FetchPosition(
        leader=1,
        leader_epoch=5,
        fetch_offset=offset,
        last_fetched_epoch=partition.log.latest_epoch if offset else -1,
        flushed_offset=offset,
        log_start_offset=0,
        needs_producers=False,
    )
    diverging = partition.replica_fetch(
        follower, epoch_of(follower), position, now_ms, SessionTime(now_ms)
    )
    assert diverging is None


def figures_of(
    *partitions: Partition, now_ms: int = 10_000, wall_ms: int = 500_000, stalled: bool = False
) -> ReplicaMetrics:
    checks = HighWatermarkChecks(lambda _: stalled, lambda _: stalled)
    figures = ReplicaMetrics(now_ms, wall_ms, checks)
    for partition in partitions:
        figures.add(partition)
    return figures


def sheet_of(figures: ReplicaMetrics) -> MetricsSnapshot:
    snapshot = MetricsSnapshot(BROKER_METRICS)
    for _ in figures.write_to(snapshot):
        pass
    return snapshot


def value(snapshot: MetricsSnapshot, name: str, *labels: str) -> float:
    return snapshot.values[f"tidelog_{name}"][labels]


def test_replicas_count_by_role_and_state() -> None:
    leader, follower, leaderless = (
        replica(0),
        replica(1, state(leader=2)),
        replica(2, state(NO_LEADER)),
    )
    damaged = replica(3)
    damaged.suspend()

    snapshot = sheet_of(figures_of(leader, follower, leaderless, damaged))

    assert value(snapshot, "broker_replicas") == 4
    assert value(snapshot, "broker_leaders") == 1
    assert value(snapshot, "broker_leaderless_replicas") == 1
    assert value(snapshot, "broker_out_of_service_replicas") == 1


@pytest.mark.parametrize(
    ("isr", "under_replicated", "at_min_isr", "under_min_isr"),
    [((1, 2, 3), 0, 0, 0), ((1, 2), 1, 1, 0), ((1,), 1, 0, 1)],
)
def test_missing_isr_members_count_at_the_leader(
    isr: tuple[int, ...], under_replicated: int, at_min_isr: int, under_min_isr: int
) -> None:
    snapshot = sheet_of(figures_of(replica(of=state(isr=isr))))

    assert value(snapshot, "broker_under_replicated_partitions") == under_replicated
    assert value(snapshot, "broker_at_min_isr_partitions") == at_min_isr
    assert value(snapshot, "broker_under_min_isr_partitions") == under_min_isr


def test_a_replica_that_a_move_adds_does_not_count_as_missing() -> None:
    moving = Moving("op", (1, 2, 3), (1, 2, 4))
    snapshot = sheet_of(
        figures_of(replica(of=replace(state(), replicas=(1, 2, 3, 4), moving=moving)))
    )

    assert value(snapshot, "broker_under_replicated_partitions") == 0


def test_missing_isr_members_do_not_count_at_a_follower() -> None:
    snapshot = sheet_of(figures_of(replica(of=state(leader=2, isr=(2,)))))

    assert value(snapshot, "broker_under_replicated_partitions") == 0


def test_the_lag_in_seconds_is_the_age_of_the_oldest_missing_record() -> None:
    partition = replica(records=3)
    fetch(partition, 2, 1, now_ms=2_000)

    snapshot = sheet_of(figures_of(partition, wall_ms=APPENDED_WALL_MS + 7_000))

    assert value(snapshot, "replication_lag_records", "sea", "0", "2") == 2
    assert value(snapshot, "replication_lag_bytes", "sea", "0", "2") == 200
    assert value(snapshot, "replication_lag_seconds", "sea", "0", "2") == 7
    assert value(snapshot, "follower_max_lag_seconds", "2") == 7


def test_a_follower_that_has_everything_has_series_at_zero() -> None:
    partition = replica(records=3)
    fetch(partition, 2, 3, now_ms=2_000)

    snapshot = sheet_of(figures_of(partition, wall_ms=APPENDED_WALL_MS + 7_000))

    assert value(snapshot, "replication_lag_seconds", "sea", "0", "2") == 0
    assert value(snapshot, "follower_max_lag_seconds", "2") == 0
    assert value(snapshot, "follower_lagging_partitions", "2") == 0


def taken_over() -> Partition:
    """Two replicas led by broker 1 since their leader, 2, died; two records are older."""
    partition = Partition(
        TopicPartition("sea", 0), TOPIC_ID, 1, FakeLog([4, 4]), high_watermark=0, listener=Notes()
    )
    of = state(isr=(1,), replicas=(1, 2), min_isr=1)
    partition.take(of, 10, broker_epoch=epoch_of(1), now_ms=LEADING_SINCE_MS)
    return partition


def test_a_dead_leader_lags_by_the_records_that_its_successor_appended() -> None:
    partition = taken_over()
    append(partition, 3)
    early = sheet_of(figures_of(partition, wall_ms=APPENDED_WALL_MS + 1_000))
    assert value(early, "follower_max_lag_seconds", "2") == 1
    append(partition, 1)

    snapshot = sheet_of(figures_of(partition, wall_ms=APPENDED_WALL_MS + 12_000))

    assert value(snapshot, "follower_max_lag_seconds", "2") == 12
    assert value(snapshot, "follower_lag_records", "2") == 4
    assert value(snapshot, "follower_lag_bytes", "2") == 400
    assert value(snapshot, "replication_lag_seconds", "sea", "0", "2") == 12
    assert value(snapshot, "replication_lag_records", "sea", "0", "2") == 4
    assert value(snapshot, "partitions_without_series") == 0


def test_without_fetches_and_writes_a_follower_has_no_series() -> None:
    snapshot = sheet_of(figures_of(taken_over()))

    assert "tidelog_replication_lag_seconds" not in snapshot.values
    assert value(snapshot, "follower_max_lag_seconds", "2") == 0
    assert value(snapshot, "follower_lag_records", "2") == 0
    assert value(snapshot, "follower_lagging_partitions", "2") == 1
    assert value(snapshot, "follower_fetch_age_seconds", "2") == 9


def test_a_followers_last_fetch_is_that_of_any_partition_and_of_its_session() -> None:
    early, late = replica(0, records=1), replica(1, records=1)
    fetch(early, 2, 1, now_ms=2_000)
    fetch(late, 2, 1, now_ms=3_000)
    leading = late.leading
    assert leading is not None
    session = leading.followers[2].session
    assert session is not None
    session.last_request_ms = 9_500

    snapshot = sheet_of(figures_of(early, late))

    assert value(snapshot, "follower_fetch_age_seconds", "2") == 0.5


def test_a_follower_counts_where_it_is_missing_in_the_isr() -> None:
    snapshot = sheet_of(figures_of(replica(0, state(isr=(1, 3))), replica(1)))

    assert value(snapshot, "follower_out_of_isr_partitions", "2") == 1
    assert value(snapshot, "follower_out_of_isr_partitions", "3") == 0


def test_a_follower_that_just_fetched_is_not_lagging_yet() -> None:
    partition = replica(records=1)
    fetch(partition, 2, 1, now_ms=9_800)
    append(partition, 1)

    snapshot = sheet_of(figures_of(partition))

    assert value(snapshot, "follower_lag_records", "2") == 1
    assert value(snapshot, "follower_lagging_partitions", "2") == 0


@pytest.mark.parametrize(("stalled", "count"), [(True, 1), (False, 0)])
def test_a_stalled_high_watermark_counts_where_records_wait(stalled: bool, count: int) -> None:
    snapshot = sheet_of(figures_of(replica(0, records=2), replica(1), stalled=stalled))

    assert value(snapshot, "broker_hw_stalled_partitions") == count
    assert value(snapshot, "waiting_consumers_partitions") == count
    assert value(snapshot, "broker_uncommitted_records") == 2


def test_the_worst_followers_have_series_before_all_others() -> None:
    healthy = [replica(number, records=1) for number in range(MANY)]
    for partition in healthy:
        for follower in (2, 3):
            fetch(partition, follower, 1, now_ms=9_900)
    behind = replica(MANY, records=5)
    fetch(behind, 2, 1, now_ms=2_000)

    snapshot = sheet_of(figures_of(*healthy, behind, wall_ms=APPENDED_WALL_MS + 8_000))

    assert len(snapshot.values["tidelog_replication_lag_seconds"]) == MAX_LAG_SERIES
    assert value(snapshot, "replication_lag_seconds", "sea", str(MANY), "2") == 8
    assert snapshot.left_out == 0


def test_with_every_partition_unhealthy_the_series_stay_within_their_bounds() -> None:
    partitions = [replica(n, state(isr=(1,)), records=3, topic=f"t{n % 200}") for n in range(MANY)]
    for partition in partitions:
        for follower in (2, 3):
            fetch(partition, follower, 1, now_ms=2_000)

    snapshot = sheet_of(figures_of(*partitions, wall_ms=APPENDED_WALL_MS + 8_000))

    assert len(snapshot.values["tidelog_replication_lag_records"]) == MAX_LAG_SERIES
    assert len(snapshot.values["tidelog_partition_log_size_bytes"]) == MAX_PARTITION_SERIES
    assert len(snapshot.values["tidelog_topic_log_size_bytes"]) == MAX_TOPIC_SERIES
    assert value(snapshot, "partitions_without_series") == 2 * MANY - MAX_LAG_SERIES
    assert value(snapshot, "follower_lag_records", "2") == 2 * MANY
    assert value(snapshot, "follower_max_lag_seconds", "3") == 8
    assert snapshot.left_out == 0


def test_an_added_replica_counts_by_its_bytes_left_to_copy_until_it_is_in_sync() -> None:
    moving = Moving("op", (1, 2, 3), (1, 2, 4))
    adding = replace(state(), replicas=(1, 2, 3, 4), moving=moving)
    partitions = [replica(of=adding), replica(1, of=adding), replica(2)]
    for partition in partitions:
        append(partition, 3)
    fetch(partitions[0], 4, 1, 2_000)
    snapshot = sheet_of(figures_of(*partitions))
    assert value(snapshot, "follower_adding_partitions", "4") == 2
    assert value(snapshot, "follower_adding_lag_bytes", "4") == 200 + 300
    joined = adding.with_isr([*adding.isr, Member(4, epoch_of(4))])
    snapshot = sheet_of(figures_of(replica(of=joined)))
    assert "tidelog_follower_adding_partitions" not in snapshot.values
