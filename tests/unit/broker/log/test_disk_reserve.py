"""A full disk: state files are written into reserved space, appends are not."""

import errno
import os
import random
from pathlib import Path, PurePath

import pytest
from structlog.testing import capture_logs

from tidelog.inspection.state_reports import RESERVE_FILES
from tidelog_broker.core.partition.replica_log import ColdRange
from tidelog_broker.damage.disk_reports import disk_probe
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.disk_reserve import (
    REFILL_INTERVAL_MS,
    RESERVE,
    RESERVE_FILE_BYTES,
    ReservedDisk,
    with_reserve,
)
from tidelog_broker.log.indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogStorageError, describe_os_error
from tidelog_broker.storage.data_directory import DataDirectory
from unit.broker.log.builders import FakeClock, batch_at, ended, open_log
from unit.broker.log.memory_disk import MemoryDisk

DATA = PurePath("/data")
SMALL = LogConfig(segment_bytes=4_000, retention_bytes=8_000)
WHOLE = RESERVE_FILES * RESERVE_FILE_BYTES


class Machine:
    def __init__(self) -> None:
        self.memory = MemoryDisk()
        self.clock = FakeClock()
        self.disk = self.started()

    def started(self) -> ReservedDisk:
        return with_reserve(self.memory, DATA, self.clock)

    def later(self) -> None:
        self.clock.now_ms += REFILL_INTERVAL_MS

    @property
    def reserved_bytes(self) -> int:
        paths = self.memory.paths()
        return sum(self.memory.file_size(p) for p in paths if p.parent == DATA / RESERVE)


def directory_of(disk: ReservedDisk) -> DataDirectory:
    rng = random.Random(1)
    return DataDirectory.open(disk, DATA, broker_id=1, boot_id="boot 1", rng=rng)


def full_log(machine: Machine) -> Log:
    """A log of which retention keeps the smaller part, on a full disk."""
    log = open_log(machine.disk, config=SMALL)
    for offset in range(40):
        log.append([batch_at(offset, size=1_000)])
    machine.memory.space = 0
    return log


@pytest.mark.rule("deletions-free-a-full-disk")
def test_retention_frees_a_full_disk_and_appends_continue() -> None:
    machine = Machine()
    log = full_log(machine)
    with pytest.raises(LogStorageError, match="No space left"):
        log.append([batch_at(40)])
    machine.later()
    assert log.delete_old_segments(None, 40) > 0
    assert log.log_start_offset > 0
    machine.later()
    log.append([batch_at(40)])
    assert machine.reserved_bytes == WHOLE


def test_a_follower_deletes_on_a_full_disk_what_its_leader_has_deleted() -> None:
    log = full_log(Machine())
    assert log.delete_below(40) > 0


def test_a_broker_starts_on_a_full_disk() -> None:
    machine = Machine()
    directory_of(machine.disk).begin_registration(None)
    machine.memory.space = 0
    assert directory_of(machine.started()).begin_registration(None) != ""


@pytest.mark.rule("deletions-free-a-full-disk")
def test_no_append_uses_the_space_reserved_for_state_files() -> None:
    machine = Machine()
    log = full_log(machine)
    machine.memory.space = None
    machine.disk.write_atomically(DATA / "state", b"x" * 50, sync=True)
    machine.memory.space = 0
    machine.disk.write_atomically(DATA / "another", b"x" * 50, sync=True)
    assert machine.memory.space > 10_000  # of an abandoned file
    with pytest.raises(LogStorageError, match="No space left") as rejected:
        log.append([batch_at(40)])
    assert rejected.value.is_full
    assert rejected.value.is_transient
    machine.memory.space = None
    machine.later()
    log.append([batch_at(40)])


def test_no_new_replica_uses_the_space_reserved_for_state_files() -> None:
    machine = Machine()
    machine.memory.space = 0
    machine.disk.write_atomically(DATA / "state", b"x" * 50, sync=True)
    clean_state = machine.reserved_bytes
    with pytest.raises(LogStorageError, match="No space left") as rejected:
        open_log(machine.disk)
    assert rejected.value.is_full
    assert machine.reserved_bytes == clean_state


def test_a_used_reserve_is_recreated_by_the_next_process() -> None:
    machine = Machine()
    machine.memory.space = 0
    machine.disk.write_atomically(DATA / "state", b"x", sync=True)
    assert machine.reserved_bytes < WHOLE
    machine.memory.space = None
    machine.started()
    assert machine.reserved_bytes == WHOLE


def test_a_disk_too_full_for_the_reserve_accepts_every_write_but_appends() -> None:
    machine = Machine()
    log = open_log(machine.disk)
    machine.memory.remove_tree(DATA / RESERVE)
    machine.memory.space = 3 * RESERVE_FILE_BYTES
    disk = machine.started()
    disk.write_atomically(DATA / "state", b"x", sync=True)
    with pytest.raises(OSError, match="reserved for state files"):
        disk.check_append_room()
    log.close()


def test_a_file_system_without_allocation_has_no_reserve_and_accepts_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reject(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(MemoryDisk, "allocate", reject)
    with capture_logs() as lines:
        machine = Machine()
    machine.disk.check_append_room()
    assert [line["event"] for line in lines] == ["disk_reserve_not_made"]


def test_a_file_larger_than_the_reserve_is_rejected_and_the_reserve_recreated() -> None:
    machine = Machine()
    machine.memory.space = 0
    with pytest.raises(OSError, match="No space left"):
        machine.disk.write_atomically(DATA / "state", bytes(2 * WHOLE), sync=True)
    machine.later()
    machine.disk.check_append_room()
    assert machine.reserved_bytes == WHOLE


def test_other_errors_do_not_touch_the_reserve() -> None:
    machine = Machine()
    machine.memory.fail_sync = True
    with pytest.raises(OSError, match="Input/output"):
        machine.disk.write_atomically(DATA / "state", b"x", sync=True)
    assert machine.reserved_bytes == WHOLE


def test_a_probe_finds_no_space_in_the_reserve() -> None:
    machine = Machine()
    machine.memory.space = 0
    probe = disk_probe(machine.disk, DATA)
    for _ in range(3):
        with pytest.raises(OSError, match=r"No space|reserved for"):
            probe()
        machine.later()
    machine.memory.space = None
    probe()


def test_the_reserve_takes_real_blocks(tmp_path: Path) -> None:
    with_reserve(OsDisk(), tmp_path, FakeClock())
    files = list((tmp_path / RESERVE).iterdir())
    assert len(files) == RESERVE_FILES
    assert sum(file.stat().st_blocks * 512 for file in files) >= WHOLE


def test_a_reserve_left_incomplete_by_a_crash_or_a_copy_is_completed(tmp_path: Path) -> None:
    with_reserve(OsDisk(), tmp_path, FakeClock())
    empty, sparse, *_ = sorted((tmp_path / RESERVE).iterdir())
    empty.write_bytes(b"")
    sparse.unlink()
    with sparse.open("wb") as file:
        file.truncate(RESERVE_FILE_BYTES)
    with_reserve(OsDisk(), tmp_path, FakeClock())
    blocks = [file.stat().st_blocks * 512 for file in (empty, sparse)]
    assert min(blocks) >= RESERVE_FILE_BYTES


def test_a_failed_write_names_its_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", reject)
    with pytest.raises(OSError, match="No space left") as rejected:
        OsDisk().write_atomically(tmp_path / "broker.json", b"x", sync=True)
    assert describe_os_error(rejected.value) == (
        f"cannot use {tmp_path}/broker.json: No space left on device; free space on that disk, "
        "then start again"
    )
    assert list(tmp_path.iterdir()) == []


def log_without_an_index(machine: Machine) -> tuple[Log, ColdRange]:
    """A log that has lost the index of its first segment, and what a thread has to do for it."""
    config = LogConfig(segment_bytes=40_000, index_interval_bytes=1_000)
    log = open_log(machine.disk, config=config)
    for offset in range(50):
        log.append([batch_at(offset, size=1_000)])
    log = open_log(machine.disk, config=config, clean_state=ended(log))
    machine.memory.remove(index_of(machine))
    cold = log.read_cached(7, max_bytes=1, up_to=50).cold
    assert cold is not None
    return log, cold


def index_of(machine: Machine) -> PurePath:
    segment = min(path for path in machine.memory.paths() if path.suffix == ".log")
    return segment.with_suffix(INDEX_SUFFIX)


@pytest.mark.parametrize("space", [0, 650])  # 650: enough for one of both files
def test_no_rebuilt_index_uses_the_space_reserved_for_state_files(space: int) -> None:
    machine = Machine()
    log, cold = log_without_an_index(machine)
    machine.memory.remove(index_of(machine).with_suffix(TIME_INDEX_SUFFIX))
    machine.memory.space = space
    assert cold.work is not None
    cold.work()
    assert len(log.read_cached(7, max_bytes=1, up_to=50).batches) == 1
    machine.disk.check_append_room()
    assert machine.reserved_bytes == WHOLE
    # One file alone would only take room.
    assert machine.memory.space == space
    assert index_of(machine) not in machine.memory.paths()


def test_no_rebuilt_index_takes_room_that_the_reserve_lacks() -> None:
    machine = Machine()
    _, cold = log_without_an_index(machine)
    machine.memory.space = 0
    machine.disk.write_atomically(DATA / "state", b"x", sync=True)
    assert machine.memory.space > 10_000  # of an abandoned file
    assert cold.work is not None
    cold.work()
    assert index_of(machine) not in machine.memory.paths()


def test_a_caller_that_waits_for_a_rebuilt_index_writes_none() -> None:
    machine = Machine()
    log, _ = log_without_an_index(machine)
    assert log.read(7, max_bytes=1, up_to=50) == [batch_at(7, size=1_000)]
    assert index_of(machine) not in machine.memory.paths()
