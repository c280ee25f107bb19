"""A moving partition from the view of its replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, Acks
from tidelog_broker.core.partition.exchange import FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.metadata.schema import LeaderAndIsr, Moving
from unit.broker.fake_log import FakeLog, epoch_of, leader, new_partition, notes, sent, state

MOVING = Moving("op", (1, 2, 3), (1, 2, 4))
NOW_MS = 1000


def adding(isr: tuple[int, ...] = (1, 2, 3), epoch: int = 5) -> LeaderAndIsr:
    return replace(state(isr=isr, epoch=epoch), replicas=MOVING.replicas, moving=MOVING)


def fetch(partition: Partition, follower: int, offset: int) -> None:
    position = FetchPosition(NO_LEADER, partition.leader_epoch, offset, 5 if offset else -1, 0, 0)
    partition.replica_fetch(follower, epoch_of(follower), position, NOW_MS)


def propose(partition: Partition) -> LeaderAndIsr | None:
    running = {b: epoch_of(b) for b in (1, 2, 3, 4)}
    return partition.propose_isr(running, now_ms=NOW_MS, lag_time_max_ms=500)


def moving_leader(log: FakeLog) -> Partition:
    """A leader that the controller informs within the epoch in which it leads."""
    partition = leader(log)
    partition.take(adding(), 11, broker_epoch=epoch_of(1), now_ms=NOW_MS)
    return partition


def test_a_broker_that_no_move_has_added_may_not_fetch() -> None:
    partition = leader(FakeLog())
    with pytest.raises(TidelogError) as raised:
        fetch(partition, 4, 0)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_a_leader_continues_in_its_epoch_when_a_move_begins() -> None:
    partition = moving_leader(FakeLog())
    assert "leadership ended" not in notes(partition)


@pytest.mark.rule("added-replica-joins-by-r4")
def test_a_replica_added_within_the_epoch_may_fetch_and_joins_the_isr() -> None:
    partition = moving_leader(FakeLog())
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 2, 1)
    fetch(partition, 3, 1)
    fetch(partition, 4, 0)
    assert propose(partition) is None
    fetch(partition, 4, 1)
    proposed = propose(partition)
    assert proposed is not None
    assert proposed.isr_ids == {1, 2, 3, 4}


def test_a_leader_that_reads_of_a_move_itself_lets_added_replicas_fetch() -> None:
    partition = leader(FakeLog())
    partition.observed(adding(), 11, NOW_MS)
    fetch(partition, 4, 0)
    assert propose(partition) is not None


@pytest.mark.rule("added-replica-joins-by-r4")
def test_an_added_replica_does_not_hold_the_high_watermark_before_it_joins() -> None:
    partition = moving_leader(FakeLog())
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 2, 1)
    fetch(partition, 3, 1)
    assert partition.high_watermark == 1


def test_progress_of_the_other_followers_is_kept_when_a_move_begins() -> None:
    partition = leader(FakeLog())
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 2, 1)
    partition.take(adding(), 11, broker_epoch=epoch_of(1), now_ms=NOW_MS)
    fetch(partition, 3, 1)
    assert partition.high_watermark == 1


@pytest.mark.rule("elections-during-reassignment")
def test_an_isr_change_of_the_leader_leaves_the_move_as_it_is() -> None:
    partition = moving_leader(FakeLog())
    fetch(partition, 4, 0)
    proposed = propose(partition)
    assert proposed is not None
    assert (proposed.moving, proposed.replicas) == (MOVING, (1, 2, 3, 4))


def test_a_leader_that_was_moved_away_stops_leading_once_it_reads_so() -> None:
    partition = moving_leader(FakeLog())
    switched = replace(state(isr=(2, 4), leader=2, epoch=6), replicas=(2, 4))
    partition.observed(switched, 12, NOW_MS)
    assert (partition.leading, partition.leader_to_follow) == (None, NO_LEADER)


def test_an_added_replica_follows_the_leader() -> None:
    partition = new_partition(FakeLog(), broker_id=4)
    partition.take(adding(), 11, broker_epoch=epoch_of(4), now_ms=NOW_MS)
    assert partition.leader_to_follow == 1


def test_a_replica_assigned_again_starts_as_unknown_to_its_leader() -> None:
    """Its earlier progress was of a log that may be deleted."""
    partition = moving_leader(FakeLog())
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 3, 1)
    without = replace(state(isr=(1, 2), epoch=6), replicas=(1, 2))
    partition.take(without, 12, broker_epoch=epoch_of(1), now_ms=NOW_MS)
    back = Moving("back", (1, 2), (1, 2, 3))
    partition.take(
        replace(without, replicas=(1, 2, 3), moving=back),
        13,
        broker_epoch=epoch_of(1),
        now_ms=NOW_MS,
    )
    assert propose(partition) is None


def test_a_leader_knows_what_an_added_replica_has_left_to_copy() -> None:
    partition = moving_leader(FakeLog())
    for _ in range(3):
        partition.append([sent()], Acks.LEADER, 1)
    assert partition.bytes_lacking() == ((4, 300),)
    fetch(partition, 4, 2)
    assert partition.bytes_lacking() == ((4, 100),)


def test_a_follower_does_not_know_what_others_lack() -> None:
    assert new_partition(FakeLog()).bytes_lacking() == ()
