"""Syncing: which offsets count as flushed, and what a power failure leaves."""

from __future__ import annotations

import threading
from pathlib import PurePath

import pytest

from tidelog_broker.log.flush import MAX_FLUSHED_SEGMENTS
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogFailedError
from unit.broker.log.builders import batch_at, batches_from, log_of, open_log, read_clean_logs
from unit.broker.log.memory_disk import MemoryDisk

SMALL_SEGMENTS = LogConfig(segment_bytes=500)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_a_flush_moves_the_flushed_offset_to_the_log_end_at_its_start(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    ticket = log.begin_flush()
    assert ticket is not None
    log.append([batch_at(3)])
    ticket.run()
    assert log.flushed_offset == 0
    log.finish_flush(ticket)
    assert log.flushed_offset == 3


def test_a_sync_beside_a_failed_one_proves_nothing_about_the_disk(
    disk: MemoryDisk,
) -> None:
    """The kernel reports a failed write once and then treats the data as written."""
    log = log_of(disk, batches_from(0, 3))
    failing, other = log.begin_flush(), log.begin_flush()
    assert failing is not None
    assert other is not None
    disk.fail_sync = True
    failing.run()
    disk.fail_sync = False
    other.run()
    for ticket in (failing, other):
        with pytest.raises(LogFailedError):
            log.finish_flush(ticket)
    assert log.flushed_offset == 0


def abandoned(disk: MemoryDisk) -> Log:
    """The caller that waited for the sync was cancelled, and the sync failed."""
    log = log_of(disk, batches_from(0, 3))
    ticket = log.begin_flush()
    assert ticket is not None
    disk.fail_sync = True
    ticket.run()
    disk.fail_sync = False
    return log


@pytest.mark.rule("damaged-replica-resigns-first")
def test_an_abandoned_flush_that_failed_still_fails_the_log(disk: MemoryDisk) -> None:
    log = abandoned(disk)
    with pytest.raises(LogFailedError):
        log.flush()
    assert (log.flushed_offset, log.failed is not None) == (0, True)


def test_a_close_is_not_clean_after_an_abandoned_flush_has_failed(
    disk: MemoryDisk,
) -> None:
    log = abandoned(disk)
    with pytest.raises(LogFailedError):
        log.close_cleanly(max_producers=1000)
    assert log.closed


def test_a_close_is_not_clean_while_an_abandoned_flush_runs(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    ticket = log.begin_flush()
    assert log.close_cleanly(max_producers=1000) is None
    assert ticket is not None
    ticket.run()


def test_an_unchanged_log_needs_no_flush(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    log.flush()
    assert log.begin_flush() is None


def test_flushed_batches_outlive_a_power_failure(disk: MemoryDisk) -> None:
    batches = [*batches_from(0, 5), *batches_from(5, 5, epoch=2)]
    log = log_of(disk, batches, SMALL_SEGMENTS)
    log.flush()
    log.append(batches_from(10, 3, epoch=3))
    disk.power_failure()
    again = open_log(disk, config=SMALL_SEGMENTS, recovery_point=10)
    assert again.recovery is not None
    assert not again.recovery.lost_data
    assert read_clean_logs(again) == batches
    assert again.leader_epochs == log.leader_epochs[:2]


class WatchedDisk(MemoryDisk):
    """Records the synced directories."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[PurePath] = []

    def sync_directory(self, directory: PurePath) -> None:
        super().sync_directory(directory)
        self.synced.append(directory)


def test_a_flush_makes_the_name_of_a_new_log_durable() -> None:
    disk = WatchedDisk()
    log = log_of(disk, batches_from(0, 1))
    log.flush()
    assert {log.directory, log.directory.parent} <= set(disk.synced)


def test_a_name_that_a_crashed_process_left_unsynced_is_synced_by_the_next() -> None:
    disk = WatchedDisk()
    log_of(disk, batches_from(0, 1))
    again = open_log(disk)
    again.append([batch_at(1)])
    again.flush()
    assert {again.directory, again.directory.parent} <= set(disk.synced)


def test_the_flushed_offset_advances_after_a_cut_only_by_the_next_flush(disk: MemoryDisk) -> None:
    """The batches that the ticket synced are not those that have these offsets now."""
    log = log_of(disk, batches_from(0, 5))
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.run()
    log.truncate_to(2)
    log.append(batches_from(2, 5, epoch=2))
    log.finish_flush(ticket)
    assert log.flushed_offset == 0
    log.flush()
    assert log.flushed_offset == 7


def test_a_cut_during_a_flush_keeps_the_flushed_offset(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 5))
    ticket = log.begin_flush()
    assert ticket is not None
    log.truncate_to(2)
    log.append(batches_from(2, 5, epoch=2))
    ticket.run()
    log.finish_flush(ticket)
    assert log.flushed_offset <= 2


def test_a_cut_lowers_the_flushed_offset(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 5))
    log.flush()
    log.truncate_to(2)
    assert log.flushed_offset == 2


def test_a_flush_that_fails_fails_the_log(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    ticket = log.begin_flush()
    assert ticket is not None
    disk.fail_sync = True
    ticket.run()
    with pytest.raises(LogFailedError, match="cannot sync the log"):
        log.finish_flush(ticket)
    disk.fail_sync = False
    assert log.flushed_offset == 0
    with pytest.raises(LogFailedError):
        log.append([batch_at(3)])


def test_a_flush_may_run_in_a_thread_while_the_log_is_deleted(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    ticket = log.begin_flush()
    assert ticket is not None
    log.delete()
    thread = threading.Thread(target=ticket.run)
    thread.start()
    thread.join()
    assert ticket.error is None
    assert disk.open_files == 0


def test_a_ticket_that_has_not_run_is_not_finished(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    ticket = log.begin_flush()
    assert ticket is not None
    with pytest.raises(ValueError, match="after its ticket has run"):
        log.finish_flush(ticket)
    ticket.run()


def test_one_flush_opens_only_so_many_files(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 100), SMALL_SEGMENTS)
    open_before = disk.open_files
    ticket = log.begin_flush()
    assert ticket is not None
    assert disk.open_files - open_before <= MAX_FLUSHED_SEGMENTS + 1
    ticket.run()
    log.finish_flush(ticket)
    assert 0 < log.flushed_offset < 100
    log.flush()
    assert log.flushed_offset == 100
