"""Reopening a log: after a clean stop, after a crash, after damage."""

from __future__ import annotations

from functools import partial
from pathlib import Path, PurePath

import pytest

from tidelog.batch import is_damaged
from tidelog.log_format import FRAME_HEADER_BYTES
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.epoch_file import EPOCHS_NAME
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogFailedError, UndecidedDamageError
from tidelog_broker.log.log_start import LEGACY_MARKER_NAME, LOG_START_NAME
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from unit.broker.log.builders import (
    DIRECTORY,
    START_MS,
    batch_at,
    batches_from,
    encode_frame,
    ended,
    log_of,
    open_log,
    read_clean_logs,
)
from unit.broker.log.memory_disk import MemoryDisk

SMALL_SEGMENTS = LogConfig(segment_bytes=500, index_interval_bytes=200)
FIRST_SEGMENT = DIRECTORY / "00000000000000000000.log"
FRAME = len(encode_frame(batch_at(0)))
BATCHES = [*batches_from(0, 6, epoch=1), *batches_from(6, 4, epoch=3)]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


reopen = partial(open_log, config=SMALL_SEGMENTS)


@pytest.mark.rule("clean-start-reads-no-data")
def test_a_start_after_a_clean_stop_reads_no_data(disk: MemoryDisk) -> None:
    clean_state = ended(log_of(disk, BATCHES, SMALL_SEGMENTS))
    last_segment = DIRECTORY / "00000000000000000008.log"
    disk.reads.clear()
    log = reopen(disk, clean_state=clean_state)
    # Only the header of the last batch is read; it shows whether this is the same log.
    assert {path.name for path, _ in disk.reads} == {EPOCHS_NAME, last_segment.name}
    assert sum(size for path, size in disk.reads if path == last_segment) < FRAME
    assert disk.open_files == 0
    assert log.recovery is None
    assert (log.log_end_offset, log.flushed_offset, log.latest_epoch) == (10, 10, 3)
    assert read_clean_logs(log) == BATCHES


def test_a_log_continues_after_a_clean_stop(disk: MemoryDisk) -> None:
    clean_state = ended(log_of(disk, BATCHES, SMALL_SEGMENTS))
    log = reopen(disk, clean_state=clean_state)
    log.append([batch_at(10, epoch=4)])
    assert read_clean_logs(log) == [*BATCHES, batch_at(10, epoch=4)]
    assert [entry.start_offset for entry in log.leader_epochs] == [0, 6, 10]


def test_a_clean_stop_without_changes_writes_nothing(disk: MemoryDisk) -> None:
    clean_state = ended(log_of(disk, BATCHES, SMALL_SEGMENTS))
    log = reopen(disk, clean_state=clean_state)
    disk.space = 0
    again = ended(log)
    assert again == clean_state
    assert reopen(disk, clean_state=again).recovery is None


def test_a_log_cut_within_a_batch_is_known_after_a_clean_stop(disk: MemoryDisk) -> None:
    # The second batch has an index entry at the new log end.
    config = LogConfig(index_interval_bytes=100)
    log = log_of(disk, [batch_at(0, size=100), batch_at(1, count=2)], config)
    log.truncate_to(2)
    again = open_log(disk, config=config, clean_state=ended(log))
    assert (again.recovery, again.log_end_offset) == (None, 1)


def test_the_age_of_the_active_segment_outlives_a_restart(disk: MemoryDisk) -> None:
    config = LogConfig(segment_ms=1000)
    clean_state = ended(log_of(disk, [batch_at(0)], config))
    log = open_log(disk, config=config, clean_state=clean_state)
    log.append([batch_at(1, append_time_ms=START_MS + 1001)])
    assert log.segment_count == 2


def test_a_log_is_intact_after_a_crash_between_writes(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    log = reopen(disk)
    assert log.recovery is not None
    assert log.recovery.batches_checked == 10
    assert (log.recovery.truncated_from, log.recovery.lost_data) == (None, False)
    assert read_clean_logs(log) == BATCHES
    assert [entry.start_offset for entry in log.leader_epochs] == [0, 6]


def test_a_log_changed_since_a_clean_stop_is_checked(disk: MemoryDisk) -> None:
    clean_state = ended(log_of(disk, BATCHES, SMALL_SEGMENTS))
    reopen(disk, clean_state=clean_state).append([batch_at(10, epoch=3)])
    again = reopen(disk, clean_state=clean_state)
    assert again.recovery is not None
    assert again.log_end_offset == 11


def test_a_clean_stop_writes_no_indexes_for_a_log_without_entries(
    disk: MemoryDisk,
) -> None:
    batches = batches_from(0, 3)
    clean_state = ended(log_of(disk, batches))
    assert not [path for path in disk.names if path.suffix in (".index", ".timeindex")]
    log = open_log(disk, clean_state=clean_state)
    assert log.recovery is None
    assert log.read(1, max_bytes=1, up_to=3) == batches[1:2]


def test_only_segments_from_the_recovery_point_on_are_checked(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    disk.reads.clear()
    log = reopen(disk, recovery_point=7)
    assert log.recovery is not None
    assert log.recovery.batches_checked == 4
    # Of the others only the first header is read; it shows whether they have the right name.
    data = {path.name for path, size in disk.reads if path.suffix == ".log" and size > FRAME}
    assert data == {"00000000000000000006.log", "00000000000000000008.log"}
    assert log.flushed_offset == 7
    assert read_clean_logs(log) == BATCHES


def test_a_segment_below_the_recovery_point_without_index_is_checked(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    disk.remove(DIRECTORY / "00000000000000000002.index")
    log = reopen(disk, recovery_point=10)
    assert log.recovery is not None
    assert log.recovery.batches_checked == 8
    assert log.recovery.reason is None


@pytest.mark.rule("damaged-replica-resigns-first")
def test_a_torn_tail_is_cut_at_any_byte() -> None:
    for cut in range(1, FRAME):
        disk = MemoryDisk()
        log_of(disk, batches_from(0, 3))
        del disk.names[FIRST_SEGMENT].data[-cut:]
        log = open_log(disk, recovery_point=2)
        report = log.recovery
        assert report is not None
        assert (report.truncated_from, report.bytes_cut) == (2, FRAME - cut)
        assert not report.lost_data
        assert len(disk.names[FIRST_SEGMENT].data) == 2 * FRAME
        log.append([batch_at(2, epoch=2)])
        assert read_clean_logs(log) == [*batches_from(0, 2), batch_at(2, epoch=2)]


def test_a_tail_of_zeros_is_cut(disk: MemoryDisk) -> None:
    log_of(disk, batches_from(0, 3))
    disk.names[FIRST_SEGMENT].data[-FRAME:] = bytes(FRAME)
    log = open_log(disk)
    assert log.recovery is not None
    assert (log.log_end_offset, log.recovery.lost_data) == (2, False)


def test_a_torn_tail_takes_its_epoch_with_it(disk: MemoryDisk) -> None:
    log_of(disk, [batch_at(0, epoch=1), batch_at(1, epoch=2)])
    del disk.names[FIRST_SEGMENT].data[-1:]
    log = open_log(disk)
    assert log.latest_epoch == 1


def unreadable(log: Log) -> list[tuple[int, int]]:
    """The offsets of the unreadable batches."""
    return [
        (batch.header.base_offset, batch.header.next_offset)
        for batch in read_clean_logs(log)
        if is_damaged(batch.header)
    ]


def test_only_a_damaged_batch_with_valid_frames_behind_it_is_unreadable(disk: MemoryDisk) -> None:
    log_of(disk, batches_from(0, 5))
    disk.names[FIRST_SEGMENT].data[2 * FRAME - 1] ^= 1
    log = open_log(disk)
    assert log.recovery is not None
    assert (log.recovery.truncated_from, log.recovery.lost_data) == (None, True)
    assert "CRC32C of the batch" in str(log.recovery.reason)
    assert unreadable(log) == [(1, 2)]
    batches = read_clean_logs(log)
    assert batches[:1] + batches[2:] == batches_from(0, 1) + batches_from(2, 3)


def test_a_segment_that_lost_its_end_keeps_those_behind_it(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    del disk.names[DIRECTORY / "00000000000000000004.log"].data[-1:]
    log = reopen(disk)
    assert log.recovery is not None
    assert log.recovery.lost_data
    assert unreadable(log) == [(5, 6)]
    assert read_clean_logs(log)[6:] == BATCHES[6:]
    assert log.latest_epoch == 3


def test_a_synced_tail_that_is_damaged_is_unreadable_and_no_torn_tail(disk: MemoryDisk) -> None:
    log_of(disk, batches_from(0, 3))
    del disk.names[FIRST_SEGMENT].data[-1:]
    log = open_log(disk, recovery_point=3)
    assert log.recovery is not None
    assert log.recovery.lost_data
    assert (unreadable(log), log.log_end_offset) == ([(2, 3)], 3)


def test_a_batch_made_unreadable_is_valid_for_the_next_start(disk: MemoryDisk) -> None:
    log_of(disk, batches_from(0, 5))
    disk.names[FIRST_SEGMENT].data[2 * FRAME - 1] ^= 1
    open_log(disk).close()
    again = open_log(disk)
    assert again.recovery is not None
    assert not again.recovery.lost_data
    assert unreadable(again) == [(1, 2)]


def test_a_log_that_ends_early_without_a_trace_is_lost_data(disk: MemoryDisk) -> None:
    log_of(disk, batches_from(0, 3))
    del disk.names[FIRST_SEGMENT].data[-FRAME:]
    log = open_log(disk, recovery_point=3)
    assert log.recovery is not None
    assert (log.recovery.lost_data, log.recovery.truncated_from) == (True, 2)


def test_a_missing_directory_is_lost_data(disk: MemoryDisk) -> None:
    log = open_log(disk, recovery_point=3)
    assert log.recovery is not None
    assert log.recovery.lost_data
    assert log.log_end_offset == 0


def test_a_missing_segment_in_the_middle_is_lost_data(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    disk.remove(DIRECTORY / "00000000000000000004.log")
    log = reopen(disk)
    assert log.recovery is not None
    assert log.recovery.lost_data
    assert "the next segment begins at 6" in str(log.recovery.reason)
    assert unreadable(log) == [(4, 6)]
    assert read_clean_logs(log)[-4:] == BATCHES[6:]


def test_a_missing_first_segment_empties_the_log(disk: MemoryDisk) -> None:
    """Otherwise it would seem to hold everything below its start offset."""
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    disk.remove(FIRST_SEGMENT)
    log = reopen(disk)
    assert log.recovery is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert log.recovery.lost_data
    assert "its first segment at 2" in str(log.recovery.reason)


@pytest.mark.parametrize("unsynced", [UnsyncedWrites.LOST_ONLY_COPY, UnsyncedWrites.KEPT_ONLY_COPY])
def test_without_its_first_segment_an_only_copy_keeps_the_later_ones(
    disk: MemoryDisk, unsynced: UnsyncedWrites
) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    disk.remove(FIRST_SEGMENT)
    for _ in range(2):
        log = reopen(disk, unsynced=unsynced)
        assert (log.log_start_offset, log.log_end_offset) == (0, 10)
        assert unreadable(log) == [(0, 2)]
        assert read_clean_logs(log)[1:] == BATCHES[2:]
        log.close()


@pytest.mark.parametrize("unsynced", [UnsyncedWrites.LOST, UnsyncedWrites.KEPT])
def test_a_missing_first_segment_changes_nothing_until_other_copies_are_known(
    disk: MemoryDisk, unsynced: UnsyncedWrites
) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    disk.remove(FIRST_SEGMENT)
    before = {path: bytes(inode.data) for path, inode in disk.names.items()}
    with pytest.raises(UndecidedDamageError):
        reopen(disk, unsynced=unsynced)
    assert {path: bytes(inode.data) for path, inode in disk.names.items()} == before
    log = reopen(disk, unsynced=unsynced.decided(is_only_copy=False))
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_a_damaged_log_start_is_derived_from_the_first_segment(disk: MemoryDisk) -> None:
    log = open_log(disk)
    log.reset_to(50)
    log.append(batches_from(50, 3))
    disk.names[DIRECTORY / LOG_START_NAME].data[-2] ^= 1
    assert read_clean_logs(open_log(disk)) == batches_from(50, 3)


@pytest.mark.rule("damage-costs-only-its-batch")
def test_every_flipped_bit_costs_only_its_batch() -> None:
    for bit in range(FRAME * 8):
        disk = MemoryDisk()
        log_of(disk, batches_from(0, 3))
        disk.names[FIRST_SEGMENT].data[FRAME + bit // 8] ^= 1 << bit % 8
        log = open_log(disk)
        assert unreadable(log) == [(1, 2)], f"bit {bit}"
        assert read_clean_logs(log)[2:] == batches_from(2, 1)
        assert log.recovery is not None
        assert log.recovery.lost_data


def test_damaged_bytes_are_stored_before_they_are_overwritten(
    disk: MemoryDisk,
) -> None:
    log_of(disk, batches_from(0, 3))
    disk.names[FIRST_SEGMENT].data[FRAME + 3] ^= 1
    damaged_bytes = bytes(disk.names[FIRST_SEGMENT].data[FRAME : 2 * FRAME])
    stored: list[tuple[PurePath, int, int, bytes]] = []
    open_log(
        disk,
        evidence=lambda path, damaged, data: stored.append(
            (path, damaged.first_offset, damaged.next_offset, data)
        ),
    )
    assert stored == [(FIRST_SEGMENT, 1, 2, damaged_bytes)]
    assert (
        disk.names[FIRST_SEGMENT].data[FRAME + FRAME_HEADER_BYTES : 2 * FRAME]
        == (damaged_bytes[FRAME_HEADER_BYTES:])
    )


def test_a_segment_copied_into_a_record_is_no_frame_of_the_log(disk: MemoryDisk) -> None:
    """The damaged batch holds a valid frame. While its own header is valid, no frame inside it
    counts.
    """
    inner = encode_frame(batch_at(2, records=b"inner"))
    log_of(disk, [batch_at(0), batch_at(1, records=bytes(50) + inner), batch_at(2)])
    disk.names[FIRST_SEGMENT].data[FRAME + FRAME_HEADER_BYTES] ^= 1
    log = open_log(disk)
    assert unreadable(log) == [(1, 2)]
    assert read_clean_logs(log)[2:] == [batch_at(2)]


def test_an_epoch_that_goes_back_is_cut(disk: MemoryDisk) -> None:
    log_of(disk, [batch_at(0, epoch=5)])
    disk.names[FIRST_SEGMENT].data += encode_frame(batch_at(1, epoch=4))
    log = open_log(disk)
    assert log.recovery is not None
    assert log.log_end_offset == 1
    assert "leader epoch 4 after 5" in str(log.recovery.reason)


@pytest.mark.parametrize("clean", [True, False])
def test_lost_epochs_are_read_from_the_batches(disk: MemoryDisk, clean: bool) -> None:
    log = log_of(disk, BATCHES, SMALL_SEGMENTS)
    clean_state = ended(log) if clean else None
    disk.remove(DIRECTORY / EPOCHS_NAME)
    log = reopen(disk, recovery_point=10 if clean else 8, clean_state=clean_state)
    assert (log.recovery is None) == clean
    assert [entry.start_offset for entry in log.leader_epochs] == [0, 6]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_is_rebuilt(disk: MemoryDisk, suffix: str) -> None:
    batches = batches_from(0, 20)
    clean_state = ended(log_of(disk, batches, LogConfig(index_interval_bytes=200)))
    disk.names[FIRST_SEGMENT.with_suffix(suffix)].data[-1] ^= 1
    log = open_log(disk, clean_state=clean_state)
    assert log.read(17, max_bytes=1, up_to=20) == batches[17:18]
    assert log.offset_for_timestamp(START_MS, up_to=20) == batches[0]


@pytest.mark.parametrize("name", ["leader-epochs.tmp", LEGACY_MARKER_NAME])
def test_incomplete_files_and_files_of_earlier_releases_are_removed(
    disk: MemoryDisk, name: str
) -> None:
    disk.write_atomically(DIRECTORY / name, b"half", sync=False)
    open_log(disk)
    assert disk.list_names(DIRECTORY) == [FIRST_SEGMENT.name]


def test_a_failed_log_does_not_close_cleanly(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    disk.space, disk.fail_truncate = 10, True
    with pytest.raises(LogFailedError, match="undo a failed append"):
        log.append([batch_at(3)])
    disk.space, disk.fail_truncate = None, False
    assert log.close_cleanly(max_producers=1000) is None
    assert read_clean_logs(open_log(disk)) == batches_from(0, 3)


def test_a_closed_log_rejects_appends(disk: MemoryDisk) -> None:
    log = open_log(disk)
    ended(log)
    with pytest.raises(ValueError, match="is closed; open it again"):
        log.append([batch_at(0)])


def test_a_deleted_log_leaves_nothing(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS).delete()
    assert disk.names == {}
    assert disk.open_files == 0


def test_many_logs_open_on_the_real_disk_without_an_open_file(tmp_path: Path) -> None:
    disk = OsDisk()
    files = SegmentFiles(disk)
    for i in range(50):
        log = open_log(disk, directory=tmp_path / str(i), files=files)
        log.append(batches_from(0, 2))
        ended(log)
    logs = [open_log(disk, directory=tmp_path / str(i), files=files) for i in range(50)]
    assert len(files) == 0
    assert all(read_clean_logs(log) == batches_from(0, 2) for log in logs)
    for log in logs:
        log.close()


def test_after_a_power_failure_the_log_ends_at_its_first_unflushed_fault(
    disk: MemoryDisk,
) -> None:
    """A sealed range would count as held, and a follower would never copy its records."""
    log_of(disk, batches_from(0, 5))
    disk.names[FIRST_SEGMENT].data[2 * FRAME - 1] ^= 1
    log = open_log(disk, unsynced=UnsyncedWrites.LOST_CUT)
    assert log.log_end_offset == 1
    assert log.recovery is not None
    assert log.recovery.lost_data
    assert log.recovery.damaged == ()
