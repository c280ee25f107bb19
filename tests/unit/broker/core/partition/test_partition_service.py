"""A replica is taken out of service and returned to it; followers lag by bytes."""

from dataclasses import replace

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, Acks
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.replica_control import LogExtent
from unit.broker.broker_parts import fetch_by
from unit.broker.fake_log import FakeLog, epoch_of, leader, new_partition, notes, sent, state

# -- lag by bytes ------------------------------------------------------------------------


def leader_of_ten_records(lag_max_bytes: int | None) -> Partition:
    """A leader of ten records of 100 bytes each."""
    partition = leader(FakeLog())
    partition.lag_max_bytes = lag_max_bytes
    partition.append([sent() for _ in range(10)], Acks.LEADER, 1)
    return partition


def proposed(partition: Partition) -> list[int] | None:
    running = {broker_id: epoch_of(broker_id) for broker_id in (1, 2, 3)}
    change = partition.propose_isr(running, now_ms=1, lag_time_max_ms=1000)
    return None if change is None else sorted(change.isr_ids)


def test_a_follower_beyond_the_limit_in_bytes_leaves() -> None:
    partition = leader_of_ten_records(500)
    fetch_by(partition, 2, 4, None)
    fetch_by(partition, 3, 5, None)
    assert proposed(partition) == [1, 3]


def test_a_fetch_triggers_its_evaluation_at_once() -> None:
    partition = leader_of_ten_records(500)
    notes(partition).clear()
    fetch_by(partition, 3, 5)
    assert "judge" not in notes(partition)
    fetch_by(partition, 2, 4)
    assert "judge" in notes(partition)


def test_without_a_limit_a_follower_may_lag_by_any_amount() -> None:
    partition = leader_of_ten_records(None)
    fetch_by(partition, 2, 0)
    assert proposed(partition) is None


# -- out of service ----------------------------------------------------------------------


def test_a_suspended_replica_stops_leading_and_reports_no_leader() -> None:
    partition = leader(FakeLog([1]))
    partition.suspend()
    assert "leadership ended" in notes(partition)
    with pytest.raises(TidelogError) as rejected:
        partition.append([sent()], Acks.LEADER, 1)
    assert rejected.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_a_suspended_replica_follows_no_leader() -> None:
    partition = new_partition(FakeLog([1]))
    partition.take(state(leader=2), 10, broker_epoch=epoch_of(1), now_ms=1)
    partition.suspend()
    assert partition.leader_to_follow == NO_LEADER
    partition.resume(FakeLog([1]))
    assert partition.leader_to_follow == 2


def test_a_resumed_replica_leads_only_in_a_new_epoch() -> None:
    partition = leader(FakeLog([1]))
    partition.suspend()
    partition.resume(FakeLog([1]))
    assert partition.leading is None
    partition.take(state(epoch=5), 11, broker_epoch=epoch_of(1), now_ms=1)
    assert partition.leading is None
    partition.take(state(epoch=6), 12, broker_epoch=epoch_of(1), now_ms=1)
    assert partition.leading is not None


def test_the_high_watermark_of_a_cut_log_ends_at_its_end() -> None:
    partition = new_partition(FakeLog([1, 1, 1]), high_watermark=3)
    partition.suspend()
    partition.resume(FakeLog([1]))
    assert partition.high_watermark == 1


# -- how far a log reached ----------------------------------------------------------------


def cut_to_one_record() -> Partition:
    partition = leader(FakeLog([1, 1, 2]))
    partition.suspend()
    partition.resume(FakeLog([1]))
    return partition


def test_the_previous_end_of_a_cut_log_is_known() -> None:
    assert cut_to_one_record().before_cut == LogExtent(3, ((1, 0), (2, 2)))


def test_of_two_cuts_without_a_leader_in_between_the_first_counts() -> None:
    partition = cut_to_one_record()
    partition.suspend()
    partition.resume(FakeLog())
    assert partition.before_cut == LogExtent(3, ((1, 0), (2, 2)))


def test_the_previous_end_is_known_until_the_partition_has_a_leader_again() -> None:
    partition = cut_to_one_record()
    resigned = state(epoch=5).resigned(1)
    nobody = replace(resigned, leader=NO_LEADER, leader_epoch=6)
    for revision, wanted in enumerate((resigned, nobody), start=11):
        partition.take(wanted, revision, broker_epoch=epoch_of(1), now_ms=1)
        assert partition.before_cut is not None
    partition.take(state(epoch=7), 13, broker_epoch=epoch_of(1), now_ms=1)
    assert partition.before_cut is None
