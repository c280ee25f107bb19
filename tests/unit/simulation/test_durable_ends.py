"""Compares the synced end that a log claims with the bytes on the simulated disk."""

from __future__ import annotations

import random
from pathlib import PurePath

import pytest

from simulation.disk import SimDisk
from simulation.durable_ends import DurableEnd

DIRECTORY = PurePath("/data/sea-0")
SEGMENT = DIRECTORY / "00000000000000000000.log"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    return disk


def write(disk: SimDisk, end: DurableEnd, end_offset: int, size: int, data: bytes) -> None:
    disk.open(SEGMENT, create=True).write_at(size - len(data), [data])
    end.written(end_offset, 0, size)


def test_synced_bytes_are_durable_once_the_file_name_is(disk: SimDisk) -> None:
    end = DurableEnd()
    write(disk, end, 3, 4, b"abcd")
    disk.open(SEGMENT).sync()
    assert end.look(disk, DIRECTORY) == 0
    disk.sync_directory(DIRECTORY)
    assert end.look(disk, DIRECTORY) == 3


def test_bytes_written_after_the_sync_are_not_durable(disk: SimDisk) -> None:
    end = DurableEnd()
    write(disk, end, 3, 4, b"abcd")
    disk.open(SEGMENT).sync()
    disk.sync_directory(DIRECTORY)
    write(disk, end, 5, 6, b"ef")
    assert end.look(disk, DIRECTORY) == 3


def test_bytes_dropped_by_a_failed_sync_are_not_durable_after_the_next(disk: SimDisk) -> None:
    end = DurableEnd()
    write(disk, end, 3, 4, b"abcd")
    disk.sync_directory(DIRECTORY)
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        disk.open(SEGMENT).sync()
    disk.open(SEGMENT).sync()
    assert end.look(disk, DIRECTORY) == 0


def test_a_truncation_shrinks_the_durable_end(disk: SimDisk) -> None:
    end = DurableEnd()
    write(disk, end, 3, 4, b"abcd")
    disk.open(SEGMENT).sync()
    disk.sync_directory(DIRECTORY)
    end.look(disk, DIRECTORY)
    end.cut(1)
    assert end.offset == 1


def test_a_power_failure_may_leave_a_file_of_full_length_with_other_bytes() -> None:
    """This happens in some of many runs; synced bytes are unchanged."""
    contents = set()
    for number in range(60):
        disk = SimDisk()
        disk.make_directory(DIRECTORY)
        file = disk.open(SEGMENT, create=True)
        file.write_at(0, [b"synced"])
        file.sync()
        disk.sync_directory(DIRECTORY)
        file.write_at(6, [b"x" * 2_000])
        disk.power_failure(random.Random(number))
        content = disk.read_file(SEGMENT)
        assert content.startswith(b"synced")
        if len(content) == 2_006 and content != b"synced" + b"x" * 2_000:
            contents.add(content)
    assert any(b"\0" * 400 in content for content in contents)
    assert any(b"\0" * 400 not in content for content in contents)
