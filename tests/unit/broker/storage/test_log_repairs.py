"""Repairs of damaged logs."""

import errno
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import (
    LogCorruptError,
    LogFailedError,
    LogStorageError,
    OutOfServiceError,
)
from unit.broker.broker_parts import KEY
from unit.broker.log.builders import batch_at, encode_frame
from unit.broker.stored_logs import (
    Stored,
    replica_path,
)


def test_after_a_repair_finds_damage_in_synced_data_the_next_one_checks_everything(
    tmp_path: Path,
) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    log = stored.logs.log_of(KEY)
    assert log is not None
    log.flush()
    segment = next(replica_path(tmp_path).glob("*.log"))
    stored.logs.take_out_of_service(KEY, "a failed sync", check_all=False)
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    reopening.error = LogCorruptError(segment, 0, "a flipped bit")
    with pytest.raises(LogCorruptError):
        stored.logs.end_repair(KEY)
    content = bytearray(segment.read_bytes())
    content[80] ^= 1
    segment.write_bytes(content)
    again = stored.logs.begin_repair(KEY)
    assert again is not None
    again.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3
    assert stored.logs.damaged_batches.of(KEY) == [(0, 1)]


def test_damage_found_during_a_repair_that_trusted_synced_data_is_repaired_next(
    tmp_path: Path,
) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    log = stored.logs.log_of(KEY)
    assert log is not None
    log.flush()
    segment = next(replica_path(tmp_path).glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[80] ^= 1
    segment.write_bytes(content)
    stored.logs.take_out_of_service(KEY, "a failed sync", check_all=False)
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    stored.logs.take_out_of_service(KEY, "a flipped bit", check_all=True)
    reopening.run()
    with pytest.raises(OutOfServiceError):
        stored.logs.end_repair(KEY)
    again = stored.logs.begin_repair(KEY)
    assert again is not None
    again.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3
    assert stored.logs.damaged_batches.of(KEY) == [(0, 1)]


def test_appends_after_a_repair_are_in_the_new_file_although_the_old_one_was_open(
    tmp_path: Path,
) -> None:
    """A caller that waited for data of the closed log opened its file again."""
    stored = Stored(tmp_path)
    stored.with_records(3)
    log = stored.logs.log_of(KEY)
    assert log is not None
    segment = next(replica_path(tmp_path).glob("*.log"))
    log.failed = LogFailedError(segment, errno.EIO, "sync")
    stored.logs.take_out_of_service(KEY, "a failed sync", check_all=False)
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    assert len(log.read(0, max_bytes=1, up_to=3)) == 1
    reopening.run()
    repaired = stored.logs.end_repair(KEY)
    repaired.append([batch_at(3)])
    assert segment.read_bytes().endswith(encode_frame(batch_at(3)))


def test_a_replica_under_repair_is_not_moved_away(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    stored.logs.take_out_of_service(KEY, "a bad checksum")
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    with pytest.raises(LogStorageError, match="while it is repaired"):
        stored.logs.delete(KEY)
    reopening.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3
    stored.logs.delete(KEY)
    assert stored.in_use() == []


def test_data_that_a_rejected_append_left_in_the_file_is_cut(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    with segment.open("ab") as file:
        file.write(encode_frame(batch_at(3)))
    stored.logs.take_out_of_service(KEY, "an append failed in its middle")
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    reopening.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3


def test_a_damaged_replica_does_not_make_the_stop_of_the_others_unclean(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    stored.logs.take_out_of_service(KEY, "a bad checksum")
    stored.logs.damage_marks.try_write(KEY, "a bad checksum")
    assert stored.logs.close() == []
    (damaged,) = Stored(tmp_path).damage
    assert (damaged.key, damaged.reason) == (KEY, "a bad checksum")


def test_a_replica_marked_as_damaged_is_written_to_new_files_at_a_start(
    tmp_path: Path,
) -> None:
    """An fsync may have failed, and no later fsync of the same file can be trusted."""
    previous = Stored(tmp_path)
    previous.with_records(3)
    previous.logs.damage_marks.try_write(KEY, "an fsync failed")
    segment = next(replica_path(tmp_path).glob("*.log"))
    before, content = segment.stat().st_ino, segment.read_bytes()
    Stored(tmp_path)
    assert segment.stat().st_ino != before
    assert segment.read_bytes() == content


def test_a_replica_that_a_start_could_not_open_is_written_to_new_files_by_its_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous incarnation may have ended after a failed fsync, and no later fsync of the
    same file can be trusted.
    """
    previous = Stored(tmp_path)
    previous.with_records(3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    before, content = segment.stat().st_ino, segment.read_bytes()

    def reject(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(OsDisk, "open", reject)
        stored = Stored(tmp_path)
    assert [damaged.key for damaged in stored.damage] == [KEY]
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    reopening.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3
    assert segment.stat().st_ino != before
    assert segment.read_bytes() == content


def with_unreadable_batch(tmp_path: Path) -> None:
    """The second of three batches is unreadable."""
    previous = Stored(tmp_path)
    previous.with_records(3)
    previous.logs.close()
    segment = next(replica_path(tmp_path).glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    (tmp_path / "clean-logs").unlink()
    stored = Stored(tmp_path)
    assert stored.logs.damaged_batches.of(KEY) == [(1, 2)]
    stored.logs.return_to_service(KEY)
    stored.logs.damage_marks.remove(KEY)
    stored.logs.close()


def evidence_states(tmp_path: Path) -> list[str]:
    return [file.suffix for file in (tmp_path / "evidence").iterdir()]


def test_a_repair_of_a_log_that_a_start_could_not_open_knows_its_unreadable_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_unreadable_batch(tmp_path)

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(Log, "open", fail)
        logs = Stored(tmp_path).logs
    assert logs.log_of(KEY) is None
    logs.damaged_batches.sweep()
    reopening = logs.begin_repair(KEY)
    assert reopening is not None
    reopening.run()
    logs.end_repair(KEY)
    assert logs.damaged_batches.of(KEY) == [(1, 2)]
    logs.damaged_batches.sweep()
    assert evidence_states(tmp_path) == [".unreadable"]


def test_evidence_of_a_removed_replica_is_marked_as_repaired(tmp_path: Path) -> None:
    with_unreadable_batch(tmp_path)
    shutil.rmtree(replica_path(tmp_path))
    Stored(tmp_path).logs.damaged_batches.sweep()
    assert evidence_states(tmp_path) == [".repaired"]
