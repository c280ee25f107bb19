"""Truncating a log, resetting it, and retention."""

from __future__ import annotations

import pytest

from tidelog.model import NO_EPOCH
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogFailedError, OffsetOutOfRangeError
from tidelog_broker.log.log_start import LOG_START_NAME
from tidelog_broker.log.retention import MAX_DELETED_AT_ONCE
from unit.broker.log.builders import (
    DIRECTORY,
    START_MS,
    batch_at,
    batches_from,
    encode_frame,
    log_of,
    open_log,
    read_clean_logs,
)
from unit.broker.log.memory_disk import MemoryDisk

SMALL_SEGMENTS = LogConfig(segment_bytes=500, index_interval_bytes=200)
FRAME = len(encode_frame(batch_at(0)))


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.mark.parametrize("offset", range(11))
def test_a_log_can_be_cut_at_any_offset_and_continues(disk: MemoryDisk, offset: int) -> None:
    log = log_of(disk, batches_from(0, 10), SMALL_SEGMENTS)
    log.truncate_to(offset)
    assert log.log_end_offset == offset
    after = [batch_at(offset, epoch=2, size=40), batch_at(offset + 1, epoch=3)]
    log.append(after)
    expected = [*batches_from(0, offset), *after]
    assert read_clean_logs(log) == expected
    assert read_clean_logs(open_log(disk, config=SMALL_SEGMENTS)) == expected


def test_a_cut_inside_a_batch_removes_the_entire_batch(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(0, count=10), batch_at(10, count=10)])
    log.truncate_to(15)
    assert log.log_end_offset == 10


def test_a_cut_beyond_the_end_does_nothing(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    log.truncate_to(7)
    assert read_clean_logs(log) == batches_from(0, 3)


def test_a_cut_takes_the_epochs_with_it(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(0, epoch=1), batch_at(1, epoch=2), batch_at(2, epoch=3)])
    log.truncate_to(1)
    assert [entry.leader_epoch for entry in log.leader_epochs] == [1]
    log.truncate_to(0)
    assert log.latest_epoch == NO_EPOCH


def test_a_cut_outlives_a_power_failure(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 10), SMALL_SEGMENTS)
    log.flush()
    log.truncate_to(5)
    disk.power_failure()
    assert read_clean_logs(open_log(disk, config=SMALL_SEGMENTS)) == batches_from(0, 5)


def test_cut_data_is_not_read_from_its_old_position(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 5))
    log.truncate_to(2)
    log.append([batch_at(2, count=2, epoch=2, size=10)])
    log.append([batch_at(4, epoch=2)])
    assert log.read(4, max_bytes=1000, up_to=5) == [batch_at(4, epoch=2)]


def test_times_are_right_after_a_cut(disk: MemoryDisk) -> None:
    times = [9, 1, 2, 50, 3, 4, 5, 6]
    batches = [batch_at(i, timestamp_ms=time) for i, time in enumerate(times)]
    log = log_of(disk, batches, LogConfig(index_interval_bytes=200))
    log.truncate_to(3)
    assert log.offset_for_timestamp(10, up_to=8) is None
    log.append([batch_at(3, timestamp_ms=12)])
    assert log.offset_for_timestamp(10, up_to=8) == batch_at(3, timestamp_ms=12)


def test_a_failed_cut_fails_the_log(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    disk.fail_truncate = True
    with pytest.raises(LogFailedError, match="cut to offset 1"):
        log.truncate_to(1)
    assert log.failed is not None


def test_a_reset_log_is_empty_and_starts_at_the_given_offset(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 10), SMALL_SEGMENTS)
    log.reset_to(100)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (100, 100, 100)
    assert log.latest_epoch == NO_EPOCH
    log.append([batch_at(100, epoch=7)])
    assert read_clean_logs(log) == [batch_at(100, epoch=7)]
    again = open_log(disk, config=SMALL_SEGMENTS)
    assert (again.log_start_offset, again.log_end_offset) == (100, 101)


def test_a_cut_below_the_start_is_a_reset(disk: MemoryDisk) -> None:
    log = open_log(disk)
    log.reset_to(100)
    log.append([batch_at(100)])
    log.truncate_to(40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)


@pytest.mark.parametrize("offset", [3, 100])
def test_an_interrupted_reset_is_finished_by_the_next_start(disk: MemoryDisk, offset: int) -> None:
    log = log_of(disk, batches_from(0, 10), SMALL_SEGMENTS)
    log.flush()
    files = dict(disk.names)
    log.reset_to(offset)
    # Only the log's start was written.
    disk.names = {**files, DIRECTORY / LOG_START_NAME: disk.names[DIRECTORY / LOG_START_NAME]}
    again = open_log(disk, config=SMALL_SEGMENTS)
    assert (again.log_start_offset, again.log_end_offset) == (offset, offset)
    assert again.latest_epoch == NO_EPOCH


def retained(**limits: int) -> LogConfig:
    return LogConfig(segment_bytes=2 * FRAME, segment_ms=1000, **limits)


def test_segments_older_than_the_retention_are_deleted(disk: MemoryDisk) -> None:
    log = open_log(disk, config=retained(retention_ms=100))
    for i in range(6):
        log.append([batch_at(i, timestamp_ms=START_MS + 10 * i)])
    # The newest records of the segments are from 10, 30 and 50.
    assert log.delete_old_segments(START_MS + 110, up_to=6) == 0
    assert log.delete_old_segments(START_MS + 131, up_to=6) == 2
    assert log.log_start_offset == 4
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, max_bytes=1, up_to=6)
    assert open_log(disk).log_start_offset == 4


def test_the_oldest_segments_beyond_the_size_are_deleted(disk: MemoryDisk) -> None:
    log = open_log(disk, config=retained(retention_bytes=3 * FRAME))
    for i in range(8):
        log.append([batch_at(i)])
    assert log.delete_old_segments(START_MS, up_to=8) == 2
    assert log.size_bytes == 4 * FRAME


def test_some_of_many_segments_are_deleted_at_once(disk: MemoryDisk) -> None:
    log = open_log(disk, config=retained(retention_bytes=0))
    for i in range(2 * MAX_DELETED_AT_ONCE + 4):
        log.append([batch_at(i)])
    deleted = [log.delete_old_segments(START_MS, up_to=log.log_end_offset) for _ in range(3)]
    assert deleted == [MAX_DELETED_AT_ONCE, 1, 0]


def test_nothing_above_the_limit_is_deleted(disk: MemoryDisk) -> None:
    log = open_log(disk, config=retained(retention_bytes=0))
    for i in range(8):
        log.append([batch_at(i)])
    assert log.delete_old_segments(START_MS, up_to=5) == 2
    assert log.log_start_offset == 4


def test_an_idle_log_is_rolled_and_expires_completely(disk: MemoryDisk) -> None:
    log = open_log(disk, config=retained(retention_ms=100))
    log.append([batch_at(0, epoch=4)])
    assert log.delete_old_segments(START_MS + 101, up_to=0) == 0
    assert log.delete_old_segments(START_MS + 101, up_to=1) == 1
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (1, 1, 4)
    again = open_log(disk)
    assert (again.log_start_offset, again.log_end_offset, again.latest_epoch) == (1, 1, 4)


def test_an_idle_segment_is_rolled_by_its_age(disk: MemoryDisk) -> None:
    log = open_log(disk, config=retained())
    log.append([batch_at(0)])
    log.delete_old_segments(START_MS + 1001, up_to=1)
    assert log.segment_count == 2


def test_epochs_of_deleted_segments_are_forgotten(disk: MemoryDisk) -> None:
    log = open_log(disk, config=retained(retention_bytes=0))
    for i in range(6):
        log.append([batch_at(i, epoch=i)])
    log.delete_old_segments(START_MS, up_to=4)
    assert [tuple(entry) for entry in log.leader_epochs] == [(4, 4), (5, 5)]


def test_an_interrupted_deletion_is_finished_by_the_next_start(disk: MemoryDisk) -> None:
    log = open_log(disk, config=retained(retention_bytes=0))
    for i in range(8):
        log.append([batch_at(i)])
    files = dict(disk.names)
    log.delete_old_segments(START_MS, up_to=5)
    disk.names = {**files, DIRECTORY / LOG_START_NAME: disk.names[DIRECTORY / LOG_START_NAME]}
    # A segment in the middle of the deleted range is already gone.
    disk.remove(DIRECTORY / "00000000000000000002.log")
    again = open_log(disk)
    assert (again.log_start_offset, again.log_end_offset) == (4, 8)
    assert again.recovery is not None
    assert not again.recovery.lost_data


def test_a_changed_configuration_applies_from_then_on(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 4))
    log.update_config(SMALL_SEGMENTS)
    log.append([batch_at(4)])
    assert log.segment_count == 2
