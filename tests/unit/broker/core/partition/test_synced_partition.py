"""Durability `synced`: a replica counts as far as its log is on the disk (rule
`damaged-replica-resigns-first`).
"""

from __future__ import annotations

import pytest

from tidelog.model import NO_LEADER, Acks
from tidelog_broker.core.partition import high_watermark as hw
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member
from unit.broker.fake_log import (
    FakeLog,
    epoch_of,
    leader,
    new_partition,
    notes,
    sent,
    stamped,
    state,
)

RUNNING = {1: epoch_of(1), 2: epoch_of(2), 3: epoch_of(3)}


def synced_leader(log: FakeLog, of: LeaderAndIsr | None = None) -> Partition:
    partition = leader(log, of)
    partition.set_synced(True)
    return partition


def fetch(
    partition: Partition, follower: int, offset: int, *, flushed: int, now_ms: int = 1000
) -> None:
    position = FetchPosition(NO_LEADER, 5, offset, 5 if offset else -1, flushed, 0)
    partition.replica_fetch(follower, epoch_of(follower), position, now_ms)


def proposed_isr(partition: Partition, now_ms: int = 1000) -> tuple[Member, ...] | None:
    proposal = partition.propose_isr(RUNNING, now_ms=now_ms, lag_time_max_ms=500)
    return None if proposal is None else proposal.isr


def test_a_replica_counts_to_its_log_end_or_to_its_flushed_offset() -> None:
    assert hw.counted_end(log_end=9, flushed_offset=4, synced=False) == 9
    assert hw.counted_end(log_end=9, flushed_offset=4, synced=True) == 4


@pytest.mark.rule("damaged-replica-resigns-first")
def test_records_that_a_follower_has_not_synced_are_not_committed() -> None:
    log = FakeLog()
    partition = synced_leader(log)
    partition.append([sent(), sent()], Acks.ALL, 2000)
    log.synced_to = 2
    fetch(partition, 2, 2, flushed=2)
    fetch(partition, 3, 2, flushed=1)
    assert partition.high_watermark == 1
    fetch(partition, 3, 2, flushed=2)
    assert partition.high_watermark == 2


@pytest.mark.rule("damaged-replica-resigns-first")
def test_records_that_the_leader_has_not_synced_are_not_committed() -> None:
    log = FakeLog()
    partition = synced_leader(log)
    partition.append([sent(), sent()], Acks.ALL, 2000)
    for follower in (2, 3):
        fetch(partition, follower, 2, flushed=2)
    assert partition.high_watermark == 0
    log.synced_to = 1
    partition.log_synced()
    assert partition.high_watermark == 1


def test_a_replicated_topic_does_not_wait_for_a_disk() -> None:
    partition = leader(FakeLog())
    partition.append([sent()], Acks.ALL, 2000)
    for follower in (2, 3):
        fetch(partition, follower, 1, flushed=0)
    assert partition.high_watermark == 1


def test_a_flushed_offset_beyond_a_followers_end_does_not_count() -> None:
    """It is of a log that was cut since."""
    log = FakeLog()
    partition = synced_leader(log)
    partition.append([sent(), sent()], Acks.ALL, 2000)
    log.synced_to = 2
    fetch(partition, 2, 2, flushed=2)
    fetch(partition, 3, 1, flushed=2)
    assert partition.high_watermark == 1


def test_a_replica_joins_only_with_its_synced_records() -> None:
    log = FakeLog([5, 5])
    log.synced_to = 2
    partition = synced_leader(log, state(isr=(1, 2)))
    fetch(partition, 2, 2, flushed=2)
    fetch(partition, 3, 2, flushed=1)
    assert proposed_isr(partition) is None
    fetch(partition, 3, 2, flushed=2)
    assert proposed_isr(partition) == tuple(Member(b, epoch_of(b)) for b in (1, 2, 3))


def test_a_member_that_never_syncs_leaves_however_often_it_fetches() -> None:
    log = FakeLog()
    partition = synced_leader(log)
    partition.append([sent()], Acks.ALL, 2000)
    for now_ms in (1200, 1400, 1600):
        fetch(partition, 2, 1, flushed=1, now_ms=now_ms)
        fetch(partition, 3, 1, flushed=0, now_ms=now_ms)
    assert proposed_isr(partition, now_ms=1600) == (Member(1, 101), Member(2, 102))


def test_a_changed_durability_reevaluates_the_reported_progress() -> None:
    partition = leader(FakeLog())
    partition.set_synced(True)
    assert notes(partition) == ["followers forgotten"]


def test_an_append_requests_a_sync() -> None:
    partition = synced_leader(FakeLog())
    partition.append([sent()], Acks.LEADER, 2000)
    assert notes(partition)[1:] == ["grew to 1", "sync from 0"]


def test_copied_batches_request_a_sync() -> None:
    partition = new_partition(FakeLog(), broker_id=2)
    partition.set_synced(True)
    partition.take(state(), 10, broker_epoch=epoch_of(2), now_ms=1)
    partition.follow(partition.fetch_position(), FetchAnswer(0, 0, 5, [stamped(0, 5)]))
    assert notes(partition) == ["grew to 1", "sync from 0"]


def test_a_log_opened_with_unsynced_data_requests_a_sync() -> None:
    partition = new_partition(FakeLog([5, 5]))
    partition.set_synced(True)
    assert notes(partition) == ["sync from 0"]


def test_a_fully_synced_log_requests_no_sync() -> None:
    log = FakeLog([5, 5])
    log.synced_to = 2
    partition = new_partition(log)
    partition.set_synced(True)
    assert notes(partition) == []


def test_a_follower_takes_no_high_watermark_beyond_its_synced_end() -> None:
    """A checkpoint of it must hold after a power failure."""
    log = FakeLog()
    partition = new_partition(log, broker_id=2)
    partition.set_synced(True)
    partition.take(state(isr=(1, 3)), 10, broker_epoch=epoch_of(2), now_ms=1)
    batches = [stamped(0, 5), stamped(1, 5)]
    partition.follow(partition.fetch_position(), FetchAnswer(2, 0, 5, batches))
    assert partition.high_watermark == 0
    log.synced_to = 2
    partition.follow(partition.fetch_position(), FetchAnswer(2, 0, 5, ()))
    assert partition.high_watermark == 2


def test_a_topic_that_becomes_synced_forgets_progress_that_is_only_in_memory() -> None:
    log = FakeLog()
    partition = leader(log)
    fetch(partition, 2, 0, flushed=0)
    partition.append([sent()], Acks.ALL, 2000)
    fetch(partition, 2, 1, flushed=0)
    assert partition.set_synced(True)
    log.synced_to = 1
    fetch(partition, 3, 1, flushed=1)
    assert partition.high_watermark == 0
    fetch(partition, 2, 1, flushed=1)
    assert partition.high_watermark == 1


def test_the_same_durability_again_forgets_nothing() -> None:
    log = FakeLog()
    partition = synced_leader(log)
    partition.append([sent()], Acks.ALL, 2000)
    log.synced_to = 1
    fetch(partition, 2, 1, flushed=1)
    assert not partition.set_synced(True)
    fetch(partition, 3, 1, flushed=1)
    assert partition.high_watermark == 1
