"""A log whose disk or content failed is checked, and cut, before it is used again."""

from __future__ import annotations

import pytest

from tidelog.batch import is_damaged
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogError, LogFailedError
from tidelog_broker.log.quarantine import discard_evidence
from tidelog_broker.log.reopening import Reopening
from tidelog_broker.log.segment import segment_path
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from unit.broker.log.builders import (
    DIRECTORY,
    batch_at,
    batches_from,
    encode_frame,
    ended,
    log_of,
    read_clean_logs,
)
from unit.broker.log.memory_disk import MemoryDisk

SMALL_SEGMENTS = LogConfig(segment_bytes=1000)
FRAME_BYTES = len(encode_frame(batch_at(0)))


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def reopen(disk: MemoryDisk, *, check_from: int = 0, rewrite_from: int | None = None) -> Log:
    reopening = Reopening(
        disk,
        DIRECTORY,
        LogConfig(),
        check_from=check_from,
        rewrite_from=rewrite_from,
    )
    reopening.run()
    if reopening.error is not None:
        raise reopening.error
    assert reopening.log is not None
    return reopening.log


def flip(disk: MemoryDisk, base_offset: int, position: int) -> None:
    disk.names[segment_path(DIRECTORY, base_offset)].data[position] ^= 1


def offsets(log: Log) -> list[int]:
    return [batch.header.base_offset for batch in read_clean_logs(log)]


def test_damage_in_data_synced_long_ago_costs_only_its_batch(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 20), SMALL_SEGMENTS)
    log.flush()
    log.close()
    flip(disk, 0, FRAME_BYTES + 80)
    log = reopen(disk)
    assert offsets(log) == list(range(20))
    assert [o for o in range(20) if is_damaged(log.header_at(o))] == [1]


def failed_in_a_sync(disk: MemoryDisk) -> Log:
    """Data below offset 3 was synced; the sync of the rest failed."""
    log = log_of(disk, batches_from(0, 3), SMALL_SEGMENTS)
    log.flush()
    for batch in batches_from(3, 10):
        log.append([batch])
    disk.fail_sync = True
    with pytest.raises(LogFailedError):
        log.flush()
    disk.fail_sync = False
    log.close()
    return log


def test_data_that_a_failed_sync_left_in_memory_is_on_disk_before_it_is_used_again(
    disk: MemoryDisk,
) -> None:
    """A second fsync of the same files would succeed without having written the data."""
    failed_in_a_sync(disk)
    log = reopen(disk, check_from=3, rewrite_from=3)
    end = log.log_end_offset
    disk.power_failure()
    again = reopen(disk)
    assert (end, again.log_end_offset) == (13, 13)
    assert offsets(again) == list(range(13))


def start_where_the_machine_kept_running(disk: MemoryDisk, recovery_point: int) -> Log:
    return Log.open(
        disk,
        DIRECTORY,
        LogConfig(),
        recovery_point=recovery_point,
        unsynced=UnsyncedWrites.KEPT,
    )


@pytest.mark.rule("damaged-replica-resigns-first")
def test_a_start_rewrites_data_that_the_previous_incarnation_may_have_failed_to_sync(
    disk: MemoryDisk,
) -> None:
    failed_in_a_sync(disk)
    log = start_where_the_machine_kept_running(disk, recovery_point=3)
    log.flush()
    assert log.flushed_offset == 13
    disk.power_failure()
    assert offsets(reopen(disk)) == list(range(13))


def test_a_start_rewrites_nothing_that_was_synced(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 20), SMALL_SEGMENTS)
    log.flush()
    log.close()
    start_where_the_machine_kept_running(disk, recovery_point=20)
    assert all(inode.is_synced for path, inode in disk.names.items() if path.suffix == ".log")


def test_a_start_that_checks_everything_rewrites_nothing_twice(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 20), SMALL_SEGMENTS)
    clean_state = ended(log)
    again = Log.open(
        disk,
        DIRECTORY,
        LogConfig(),
        recovery_point=20,
        unsynced=UnsyncedWrites.KEPT,
        check_all=True,
        clean_state=clean_state,
    )
    assert again.recovery is not None
    assert again.recovery.batches_checked == 20
    assert all(inode.is_synced for path, inode in disk.names.items() if path.suffix == ".log")


def test_synced_segments_are_not_rewritten(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 20), SMALL_SEGMENTS)
    log.flush()
    log.close()
    before = dict(disk.names)
    reopen(disk, check_from=20, rewrite_from=20)
    rewritten = [p.name for p in before if p.suffix == ".log" and disk.names[p] is not before[p]]
    assert rewritten == [max(p.name for p in before if p.suffix == ".log")]


def test_a_disk_that_still_fails_is_an_error_and_costs_nothing(disk: MemoryDisk) -> None:
    failed_in_a_sync(disk)
    disk.fail_sync = True
    with pytest.raises(LogError, match="cannot repair the log"):
        reopen(disk, check_from=3, rewrite_from=3)
    disk.fail_sync = False
    assert offsets(reopen(disk, check_from=3, rewrite_from=3)) == list(range(13))


def test_all_files_are_closed_again(disk: MemoryDisk) -> None:
    failed_in_a_sync(disk)
    before = disk.open_files
    reopen(disk, check_from=3, rewrite_from=3)
    assert disk.open_files == before


def test_a_closed_log_opens_no_file_for_a_caller_that_waited(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 5))
    log.flush()
    log.close()
    open_files = disk.open_files
    assert log.scrub_target(2, None) is None
    assert log.frames_from(2) is None
    path = segment_path(DIRECTORY, 0)
    assert log.begin_quarantine(path, discard_evidence, copies=True) is None
    assert log.begin_restore([batch_at(2)], waits=False) is None
    assert disk.open_files == open_files
