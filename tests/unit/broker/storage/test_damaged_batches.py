"""The evidence of damaged batches while other threads write, read and sweep it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import PurePath

import pytest

from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.quarantine import DamagedRange
from tidelog_broker.storage.damaged_batches import (
    EVIDENCE_RETENTION_MS,
    MIN_EVIDENCE_BYTES,
    DamagedBatches,
)
from unit.broker.broker_parts import DATA, KEY
from unit.broker.fake_log import NAME
from unit.broker.log.builders import FakeClock, batch_at
from unit.broker.log.memory_disk import MemoryDisk

EVIDENCE = DATA / "evidence"
SEGMENT = PurePath("00000000000000000000.log")


class HookedDisk(MemoryDisk):
    """Calls hooks where another thread may run."""

    def __init__(self) -> None:
        super().__init__()
        self.after_write: Callable[[], None] = lambda: None
        self.before_size: Callable[[], None] = lambda: None

    def write_atomically(self, path: PurePath, data: bytes, *, sync: bool) -> None:
        super().write_atomically(path, data, sync=sync)
        self.after_write()

    def file_size(self, path: PurePath) -> int:
        self.before_size()
        return super().file_size(path)


class Evidence:
    """The damaged batches of a broker."""

    def __init__(self, disk: HookedDisk | None = None) -> None:
        self.disk = disk or HookedDisk()
        self.clock = FakeClock()
        self.batches = DamagedBatches(self.disk, EVIDENCE, self.clock)
        self.batches.prepare()

    def restart(self) -> Evidence:
        return Evidence(self.disk)

    def keep(self, first_offset: int) -> None:
        damaged = DamagedRange(first_offset, first_offset + 1, 0, 10, "a flipped bit")
        self.batches.evidence_of(NAME, KEY)(SEGMENT, damaged, bytes(10))

    def sealed_log(self) -> Log:
        """Three batches, of which the second is unreadable."""
        directory = DATA / "log"
        log = Log.open(self.disk, directory, LogConfig(), recovery_point=0)
        log.append([batch_at(offset) for offset in range(3)])
        path = directory / SEGMENT
        data = self.disk.names[path].data
        data[len(data) // 2] ^= 1
        check = log.begin_quarantine(path, self.batches.evidence_of(NAME, KEY), copies=False)
        assert check is not None
        check.run()
        log.finish_quarantine(check)
        return log

    def states(self) -> list[str]:
        return [name.rsplit(".", 1)[1] for name in self.disk.list_names(EVIDENCE)]


def test_a_sweep_while_evidence_is_written_leaves_it_unreadable() -> None:
    evidence = Evidence()
    evidence.disk.after_write = evidence.batches.sweep
    evidence.keep(1)
    assert evidence.states() == ["unreadable"]
    assert evidence.batches.of(KEY) == [(1, 2)]


def failing_write() -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_range_whose_evidence_cannot_be_written_is_not_damaged() -> None:
    evidence = Evidence()
    evidence.disk.after_write = failing_write
    with pytest.raises(OSError, match="Input/output error"):
        evidence.keep(1)
    assert evidence.batches.of(KEY) == []


def test_a_full_disk_gets_only_the_beginning_of_the_evidence() -> None:
    evidence = Evidence()
    evidence.disk.space = MIN_EVIDENCE_BYTES + 1000
    damaged = DamagedRange(1, 1, 0, 100_000, "it does not continue the log")
    evidence.batches.evidence_of(NAME, KEY)(SEGMENT, damaged, bytes(100_000))
    (content,) = [inode.data for path, inode in evidence.disk.names.items() if path.suffix]
    assert content.endswith(b"\n" + bytes(MIN_EVIDENCE_BYTES))


def test_evidence_of_the_same_offset_and_time_is_all_kept() -> None:
    evidence = Evidence()
    for content in (b"one", b"two"):
        damaged = DamagedRange(1, 1, 0, 3, "it does not continue the log")
        evidence.batches.evidence_of(NAME, KEY)(SEGMENT, damaged, content)
    kept = [inode.data for path, inode in evidence.disk.names.items() if path.parent == EVIDENCE]
    assert sorted(data[-3:] for data in kept) == [b"one", b"two"]


def test_a_known_range_stays_if_its_evidence_cannot_be_written_again() -> None:
    evidence = Evidence()
    evidence.keep(1)
    evidence.disk.after_write = failing_write
    with pytest.raises(OSError, match="Input/output error"):
        evidence.keep(1)
    assert evidence.batches.of(KEY) == [(1, 2)]


def test_evidence_that_another_thread_deletes_meanwhile_stops_no_sweep() -> None:
    evidence = Evidence()
    evidence.keep(1)
    evidence.batches.forget(KEY)
    evidence.batches.sweep()
    assert evidence.states() == ["repaired"]

    def delete_all() -> None:
        for name in evidence.disk.list_names(EVIDENCE):
            evidence.disk.remove(EVIDENCE / name)

    evidence.disk.before_size = delete_all
    evidence.clock.now_ms += EVIDENCE_RETENTION_MS + 1
    evidence.batches.sweep()
    assert evidence.states() == []


def test_evidence_that_a_sweep_renames_meanwhile_does_not_prevent_other_evidence() -> None:
    evidence = Evidence()
    evidence.keep(1)
    evidence.batches.forget(KEY)

    def sweep_once() -> None:
        evidence.disk.before_size = lambda: None
        evidence.batches.sweep()

    evidence.disk.before_size = sweep_once
    evidence.keep(2)
    assert evidence.states() == ["repaired", "unreadable"]


def test_a_sweep_leaves_the_evidence_of_a_log_that_is_not_open_yet() -> None:
    evidence = Evidence()
    evidence.keep(1)
    again = evidence.restart()
    again.batches.sweep()
    assert again.states() == ["unreadable"]


def test_a_sweep_while_a_log_is_loaded_leaves_its_evidence_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evidence = Evidence()
    log = evidence.sealed_log()
    again = evidence.restart()
    header_at = log.header_at

    def sweep_first(offset: int) -> object:
        again.batches.sweep()
        return header_at(offset)

    monkeypatch.setattr(log, "header_at", sweep_first)
    again.batches.load(KEY, log)
    assert again.states() == ["unreadable"]
    assert again.batches.of(KEY) == [(1, 2)]


def test_evidence_is_kept_if_a_passing_error_hides_whether_the_batch_is_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evidence = Evidence()
    log = evidence.sealed_log()
    again = evidence.restart()

    def fail(_: int) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(log, "header_at", fail)
        again.batches.load(KEY, log)
    again.batches.sweep()
    assert again.states() == ["unreadable"]
    again.batches.load(KEY, log)
    assert again.batches.of(KEY) == [(1, 2)]


def test_evidence_of_a_repaired_batch_is_marked_once_its_log_is_loaded() -> None:
    evidence = Evidence()
    log = evidence.sealed_log()
    log.restore([batch_at(1)])
    again = evidence.restart()
    again.batches.load(KEY, log)
    again.batches.sweep()
    assert again.states() == ["repaired"]


def test_evidence_of_a_deleted_log_that_was_never_opened_is_marked() -> None:
    evidence = Evidence()
    evidence.keep(1)
    again = evidence.restart()
    again.batches.forget(KEY)
    again.batches.sweep()
    assert again.states() == ["repaired"]
