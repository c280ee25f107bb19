"""The offset checkpoint of a data directory."""

from __future__ import annotations

import errno
from pathlib import PurePath

import pytest

from tidelog_broker.log.checkpoint import OffsetCheckpoint
from unit.broker.log.memory_disk import MemoryDisk

PATH = PurePath("/data/recovery-points")
OFFSETS = {("topic-a", 0): 5, ("topic-a", 11): 0, ("topic-b", 0): 1 << 50}


def test_a_checkpoint_returns_what_was_written() -> None:
    disk = MemoryDisk()
    OffsetCheckpoint(disk, PATH).write(OFFSETS)
    assert OffsetCheckpoint(disk, PATH).read() == (OFFSETS, None, disk.file_id(PATH))


def test_a_missing_file_is_empty_and_no_damage() -> None:
    assert OffsetCheckpoint(MemoryDisk(), PATH).read() == ({}, None, None)


def test_a_damaged_file_is_empty_and_reports_why() -> None:
    disk = MemoryDisk()
    OffsetCheckpoint(disk, PATH).write(OFFSETS)
    disk.names[PATH].data[-5] ^= 1
    content = OffsetCheckpoint(disk, PATH).read()
    assert content.offsets == {}
    assert content.damage is not None
    assert str(PATH) in content.damage


def test_a_failed_write_leaves_the_old_file() -> None:
    disk = MemoryDisk()
    checkpoint = OffsetCheckpoint(disk, PATH)
    checkpoint.write(OFFSETS)
    disk.space = 3
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is checked
        checkpoint.write({("topic-a", 0): 6})
    assert caught.value.errno == errno.ENOSPC
    assert checkpoint.read().offsets == OFFSETS


def test_a_synced_checkpoint_outlives_a_power_failure() -> None:
    disk = MemoryDisk()
    OffsetCheckpoint(disk, PATH).write(OFFSETS)
    disk.power_failure()
    assert OffsetCheckpoint(disk, PATH).read().offsets == OFFSETS
