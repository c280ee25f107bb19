"""Reading around bad sectors costs no more than their contents."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePath

import pytest

from tidelog_broker.log.bad_sectors import (
    FILLER,
    MAX_UNREADABLE_BYTES,
    READ_ATTEMPTS,
    SECTOR_BYTES,
    BadSectorReader,
    replace_file,
)
from tidelog_broker.log.disk import OsDisk
from unit.broker.log.memory_disk import MemoryDisk

PATH = PurePath("/data/file.log")
DATA = os.urandom(3 * SECTOR_BYTES + 100)


def disk_with(data: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.write_atomically(PATH, data, sync=True)
    return disk


def test_one_bad_sector_is_filled_and_everything_around_it_is_read() -> None:
    disk = disk_with(DATA)
    disk.spoil(PATH, SECTOR_BYTES + 7)
    around = BadSectorReader(disk.open(PATH))
    expected = DATA[:SECTOR_BYTES] + FILLER + DATA[2 * SECTOR_BYTES :]
    assert around.read_at(len(DATA), 0) == expected
    assert around.read_at(1000, 100) == expected[100:1100]
    assert around.bad_sectors == {SECTOR_BYTES}


def test_a_sector_that_a_retry_reads_is_not_bad() -> None:
    disk = disk_with(DATA)
    disk.failing_reads = READ_ATTEMPTS
    around = BadSectorReader(disk.open(PATH))
    assert around.read_at(len(DATA), 0) == DATA
    assert around.bad_sectors == set()


def test_a_disk_that_reads_nothing_has_failed_as_a_whole() -> None:
    data = bytes(2 * MAX_UNREADABLE_BYTES)
    disk = disk_with(data)
    for position in range(0, len(data), SECTOR_BYTES):
        disk.spoil(PATH, position)
    with pytest.raises(OSError, match="Input/output error"):
        replace_file(disk, PATH)
    assert disk.file_size(PATH) == len(data)
    with pytest.raises(OSError, match="Input/output error"):
        disk.open(PATH).read_at(1, 0)


def test_a_copy_has_other_sectors() -> None:
    disk = disk_with(DATA)
    disk.spoil(PATH, 0)
    assert not replace_file(disk, PATH)
    assert disk.read_file(PATH) == FILLER + DATA[SECTOR_BYTES:]


def test_a_read_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.log"
    path.write_bytes(DATA)
    file = OsDisk().open(path)

    def bad_sectors(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", bad_sectors)
    with pytest.raises(OSError, match="Input/output error") as failed:
        file.read_at(10, 0)
    file.close()
    assert failed.value.filename == str(path)
