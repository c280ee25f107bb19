"""A log that is cut below the checkpoints on disk, and the next start."""

import errno
from pathlib import Path

import pytest

from tidelog_broker.log.checkpoint import OffsetCheckpoint
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogStorageError
from tidelog_broker.storage.checkpoints import Checkpoints, CheckpointWrite
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.replica_notes import ReplicaNotes
from unit.broker.broker_parts import DATA, KEY
from unit.broker.fake_log import NAME
from unit.broker.log.builders import FakeClock, batch_at
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.stored_logs import CONFIG, Stored, checkpoint, end_of


def reject(*_: object) -> None:
    raise OSError(errno.EIO, "input/output error")


def log_in(logs: LogDirectory) -> Log:
    log = logs.log_of(KEY)
    assert log is not None
    return log


def cut_and_grown(path: Path, *, cut_to: int, end: int) -> Stored:
    """A log committed and synced up to 3, as the checkpoints say, then cut, then grown again."""
    stored = Stored(path)
    stored.with_records(3)
    log = stored.logs.open_replica(NAME, KEY, CONFIG)
    log.flush()
    checkpoint(stored.logs, {KEY: 3})
    log.truncate_to(cut_to)
    log.append([batch_at(offset, epoch=2) for offset in range(cut_to, end)])
    return stored


@pytest.mark.rule("truncated-records-stay-uncommitted")
def test_records_that_replaced_truncated_ones_do_not_count_as_committed(tmp_path: Path) -> None:
    cut_and_grown(tmp_path, cut_to=1, end=5)
    assert Stored(tmp_path).logs.high_watermark(KEY) == 1


def test_a_log_shortened_by_a_cut_is_not_damaged(tmp_path: Path) -> None:
    cut_and_grown(tmp_path, cut_to=1, end=2)
    stored = Stored(tmp_path)
    assert (stored.damage, end_of(stored)) == ([], 2)


def test_a_log_that_lost_more_than_was_cut_is_damaged(tmp_path: Path) -> None:
    cut_and_grown(tmp_path, cut_to=2, end=2)
    (segment,) = tmp_path.glob("replicas/*/*.log")
    segment.write_bytes(b"")
    assert [damaged.key for damaged in Stored(tmp_path).damage] == [KEY]


def test_the_lowest_of_several_cuts_counts(tmp_path: Path) -> None:
    stored = cut_and_grown(tmp_path, cut_to=1, end=3)
    log_in(stored.logs).truncate_to(2)
    assert Stored(tmp_path).logs.high_watermark(KEY) == 1


def test_a_reset_log_does_not_count_as_committed(tmp_path: Path) -> None:
    stored = cut_and_grown(tmp_path, cut_to=3, end=3)
    log_in(stored.logs).reset_to(0)
    log_in(stored.logs).append([batch_at(0, epoch=2)])
    assert Stored(tmp_path).logs.high_watermark(KEY) == 0


def test_a_cut_above_the_checkpoints_is_not_noted(tmp_path: Path) -> None:
    log_in(cut_and_grown(tmp_path, cut_to=3, end=5).logs).truncate_to(4)
    assert list((tmp_path / "cuts").iterdir()) == []


def test_the_note_is_removed_with_the_next_checkpoints(tmp_path: Path) -> None:
    stored = cut_and_grown(tmp_path, cut_to=1, end=4)
    assert len(list((tmp_path / "cuts").iterdir())) == 1
    checkpoint(stored.logs, {KEY: 4})
    assert list((tmp_path / "cuts").iterdir()) == []
    assert Stored(tmp_path).logs.high_watermark(KEY) == 4


def test_a_replica_that_returns_to_a_broker_begins_without_its_previous_checkpoints(
    tmp_path: Path,
) -> None:
    stored = cut_and_grown(tmp_path, cut_to=3, end=3)
    stored.logs.delete(KEY)
    stored.with_records(5)
    again = Stored(tmp_path)
    assert (again.logs.high_watermark(KEY), again.damage) == (0, [])


@pytest.mark.rule("truncated-records-stay-uncommitted")
def test_a_log_cut_when_it_was_opened_does_not_count_as_committed() -> None:
    disk = MemoryDisk()
    logs = LogDirectory(disk, DATA, FakeClock())
    logs.open_all()
    logs.open_replica(NAME, KEY, CONFIG).append([batch_at(offset) for offset in range(3)])
    checkpoint(logs, {KEY: 3}, sync=True)
    disk.power_failure()
    logs = LogDirectory(disk, DATA, FakeClock())
    logs.open_all(intact=False)
    logs.open_undecided(())
    assert log_in(logs).log_end_offset == 0
    # As a start does; nothing is known to be synced.
    checkpoint(logs, {})
    log = log_in(logs)
    log.append([batch_at(offset, epoch=2) for offset in range(5)])
    log.flush()
    disk.power_failure()
    logs = LogDirectory(disk, DATA, FakeClock())
    logs.open_all(intact=False)
    assert (log_in(logs).log_end_offset, logs.high_watermark(KEY)) == (5, 0)


def test_with_an_unreadable_note_no_checkpoint_counts(tmp_path: Path) -> None:
    cut_and_grown(tmp_path, cut_to=1, end=5)
    (note,) = (tmp_path / "cuts").iterdir()
    note.write_bytes(b"nonsense")
    assert Stored(tmp_path).logs.high_watermark(KEY) == 0


def test_nothing_is_cut_if_the_cut_cannot_be_noted() -> None:
    disk = MemoryDisk()
    checkpoints = Checkpoints(disk, DATA)
    checkpoints.read()
    write = checkpoints.begin({KEY: 3}, {})
    write.run()
    checkpoints.finish(write)
    disk.fail_sync = True
    with pytest.raises(OSError, match="error"):
        checkpoints.note_cut(KEY, 1)
    assert checkpoints.high_watermark(KEY) == 3


def test_a_replica_is_rejected_while_its_previous_checkpoints_cannot_be_noted() -> None:
    disk = MemoryDisk()
    logs = LogDirectory(disk, DATA, FakeClock())
    logs.open_all()
    log = logs.open_replica(NAME, KEY, CONFIG)
    log.append([batch_at(offset) for offset in range(3)])
    checkpoint(logs, {KEY: 3})
    logs.delete(KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplicaNotes, "write", reject)
        with pytest.raises(LogStorageError, match="note the end"):
            logs.open_replica(NAME, KEY, CONFIG)
    assert logs.log_of(KEY) is None
    assert logs.open_replica(NAME, KEY, CONFIG).log_end_offset == 0
    assert logs.high_watermark(KEY) == 0


def begun(high_watermark: int = 3) -> tuple[MemoryDisk, Checkpoints, CheckpointWrite]:
    disk = MemoryDisk()
    checkpoints = Checkpoints(disk, DATA)
    checkpoints.read()
    return disk, checkpoints, checkpoints.begin({KEY: high_watermark}, {})


def known_at_the_next_start(disk: MemoryDisk) -> int:
    checkpoints = Checkpoints(disk, DATA)
    checkpoints.read()
    return checkpoints.high_watermark(KEY)


def test_a_cut_during_the_write_of_checkpoints_does_not_count() -> None:
    disk, checkpoints, write = begun()
    checkpoints.note_cut(KEY, 1)
    write.run()
    checkpoints.finish(write)
    assert (checkpoints.high_watermark(KEY), known_at_the_next_start(disk)) == (1, 1)


def test_a_repeated_cut_during_the_write_of_checkpoints_stays_noted() -> None:
    disk, checkpoints, _ = begun()
    checkpoints.note_cut(KEY, 2)
    write = checkpoints.begin({KEY: 3}, {})
    checkpoints.note_cut(KEY, 1)
    write.run()
    checkpoints.finish(write)
    assert known_at_the_next_start(disk) == 1


@pytest.mark.rule("truncated-records-stay-uncommitted")
@pytest.mark.parametrize("fails", [False, True], ids=["under way", "failed"])
def test_a_note_stays_as_low_as_checkpoints_possibly_on_disk_require(fails: bool) -> None:
    disk, checkpoints, write = begun(100)
    write.run()
    checkpoints.finish(write)
    checkpoints.note_cut(KEY, 50)
    write = checkpoints.begin({KEY: 52}, {KEY: 120})
    if fails:
        disk.fail_sync = True
        write.run()
        with pytest.raises(OSError, match="error"):
            checkpoints.finish(write)
        disk.fail_sync = False
    checkpoints.note_cut(KEY, 90)
    assert known_at_the_next_start(disk) == 50


def test_a_note_is_removed_with_the_checkpoints_taken_after_it() -> None:
    disk, checkpoints, _ = begun()
    checkpoints.note_cut(KEY, 1)
    write = checkpoints.begin({KEY: 2}, {})
    write.run()
    checkpoints.finish(write)
    assert known_at_the_next_start(disk) == 2


@pytest.mark.rule("truncated-records-stay-uncommitted")
def test_checkpoints_that_come_too_late_are_not_written() -> None:
    disk, checkpoints, late = begun(3)
    write = checkpoints.begin({KEY: 2}, {})
    write.run()
    late.run()
    assert [checkpoints.finish(each) for each in (write, late)] == [True, False]
    assert (checkpoints.high_watermark(KEY), known_at_the_next_start(disk)) == (2, 2)


def test_checkpoints_that_may_have_been_written_count_as_written() -> None:
    disk, checkpoints, _ = begun()
    checkpoints.note_cut(KEY, 3)
    disk.fail_sync = True
    failing = checkpoints.begin({KEY: 5}, {}, sync=True)
    failing.run()
    with pytest.raises(OSError, match="error"):
        checkpoints.finish(failing)
    disk.fail_sync = False
    checkpoints.note_cut(KEY, 4)
    assert checkpoints.high_watermark(KEY) == 4


def test_unchanged_checkpoints_are_not_written_again(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    checkpoint(stored.logs, {KEY: 2})
    file = tmp_path / "high-watermarks"
    first = file.stat().st_ino
    checkpoint(stored.logs, {KEY: 2})
    assert file.stat().st_ino == first
    checkpoint(stored.logs, {KEY: 3})
    assert file.stat().st_ino != first
    assert Stored(tmp_path).logs.high_watermark(KEY) == 3


def test_checkpoints_that_must_be_synced_are_written_in_any_case(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    checkpoint(stored.logs, {KEY: 2})
    first = (tmp_path / "high-watermarks").stat().st_ino
    checkpoint(stored.logs, {KEY: 2}, sync=True)
    assert (tmp_path / "high-watermarks").stat().st_ino != first


def test_after_a_failed_write_the_same_checkpoints_are_written(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    checkpoint(stored.logs, {KEY: 2})
    failed = stored.logs.begin_checkpoint({KEY: 3})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(OffsetCheckpoint, "write", lambda *_, **__: reject())
        failed.run()
    with pytest.raises(OSError, match="input/output error"):
        stored.logs.finish_checkpoint(failed)
    checkpoint(stored.logs, {KEY: 3})
    assert Stored(tmp_path).logs.high_watermark(KEY) == 3
