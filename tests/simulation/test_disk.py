"""What a power failure and failed operations leave on a disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import PurePath

import pytest

from simulation.disk import SimDisk

DIRECTORY = PurePath("/data/a")
FILE = DIRECTORY / "log"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    return disk


def write(disk: SimDisk, data: bytes, at: int = 0) -> None:
    disk.open(FILE, create=True).write_at(at, [data])


def left_by_failures(disk_of: list[SimDisk]) -> list[bytes | None]:
    left: list[bytes | None] = []
    for seed, disk in enumerate(disk_of):
        disk.power_failure(random.Random(seed))
        left.append(disk.read_file(FILE) if FILE in disk.paths() else None)
    return left


def synced(data: bytes) -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    write(disk, data)
    disk.open(FILE).sync()
    disk.sync_directory(DIRECTORY)
    return disk


def test_what_was_synced_stays() -> None:
    assert set(left_by_failures([synced(b"abc") for _ in range(50)])) == {b"abc"}


def test_what_was_added_since_stays_is_gone_is_torn_or_holds_other_bytes() -> None:
    disks = [synced(b"abc") for _ in range(200)]
    for disk in disks:
        write(disk, b"defg", at=3)
    left = {content for content in left_by_failures(disks) if content is not None}
    assert {b"abc", b"abcdefg", b"abc\0\0\0\0"} < left
    assert {content for content in left if len(content) < 7} <= {
        b"abc",
        b"abcd",
        b"abcde",
        b"abcdef",
    }
    assert all(content.startswith(b"abc") and len(content) <= 7 for content in left)


def test_a_cut_that_was_not_synced_may_be_undone() -> None:
    disks = [synced(b"abcdef") for _ in range(50)]
    for disk in disks:
        disk.open(FILE).truncate(2)
        write(disk, b"XY", at=2)
    assert set(left_by_failures(disks)) == {b"abcdef", b"abXY"}


def test_a_name_that_was_not_synced_may_be_missing() -> None:
    disks = [SimDisk() for _ in range(50)]
    for disk in disks:
        disk.make_directory(DIRECTORY)
        write(disk, b"abc")
        disk.open(FILE).sync()
    assert set(left_by_failures(disks)) == {None, b"abc"}


def test_a_whole_directory_is_renamed_and_removed(disk: SimDisk) -> None:
    write(disk, b"abc")
    disk.make_directory(PurePath("/data/strays"))
    disk.rename(DIRECTORY, PurePath("/data/strays/a"))
    assert disk.list_names(PurePath("/data")) == ["strays"]
    assert disk.read_file(PurePath("/data/strays/a/log")) == b"abc"
    disk.remove_tree(PurePath("/data/strays/a"))
    assert disk.paths() == []


def test_a_full_disk_takes_what_still_fits(disk: SimDisk) -> None:
    disk.space = 2
    with pytest.raises(OSError, match="No space"):
        write(disk, b"abc")
    assert disk.read_file(FILE) == b"ab"


def test_a_sync_fails_as_often_as_it_should(disk: SimDisk) -> None:
    write(disk, b"abc")
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        disk.open(FILE).sync()
    disk.open(FILE).sync()


def test_a_failure_of_segment_syncs_spares_other_files_and_what_is_synced(disk: SimDisk) -> None:
    write(disk, b"abc")
    segment = disk.open(DIRECTORY / "0.log", create=True)
    disk.failing_segment_syncs = 1
    disk.sync_directory(DIRECTORY)
    disk.open(FILE).sync()
    segment.sync()
    segment.write_at(0, [b"abc"])
    with pytest.raises(OSError, match="Input/output"):
        segment.sync()
    segment.sync()


def test_a_flipped_bit_is_there_after_a_reboot() -> None:
    disk = synced(b"abc")
    disk.flip_bit(FILE, 1, 0)
    disk.power_failure(random.Random(1))
    assert disk.read_file(FILE) == b"acc"


def test_what_a_failed_sync_could_not_write_no_later_one_makes_durable() -> None:
    disk = synced(b"abc")
    write(disk, b"def", at=3)
    disk.failing_syncs = 1
    file = disk.open(FILE)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert file.read_at(9, 0) == b"abcdef"
    write(disk, b"ghi", at=6)
    file.sync()
    disk.power_failure(random.Random(1))
    assert disk.read_file(FILE) == b"abc\0\0\0ghi"


def test_what_is_written_again_after_a_failed_sync_is_durable_once_synced() -> None:
    disk = synced(b"abc")
    write(disk, b"def", at=3)
    disk.failing_syncs = 1
    file = disk.open(FILE)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    write(disk, b"xyz", at=3)
    file.sync()
    disk.power_failure(random.Random(1))
    assert disk.read_file(FILE) == b"abcxyz"


def test_a_file_that_takes_the_place_of_one_that_could_not_be_synced_counts() -> None:
    disk = synced(b"abc")
    write(disk, b"def", at=3)
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        disk.open(FILE).sync()
    new = DIRECTORY / "new"
    disk.open(new, create=True).write_at(0, [b"abcdef"])
    disk.rename(new, FILE)
    assert disk.rewritten == 1


@pytest.mark.parametrize("what", ["read", "write"])
def test_reads_and_writes_fail_as_often_as_they_should(disk: SimDisk, what: str) -> None:
    write(disk, b"abc")
    file = disk.open(FILE)
    setattr(disk, f"failing_{what}s", 1)
    uses: dict[str, Callable[[], object]] = {
        "read": lambda: file.read_at(3, 0),
        "write": lambda: write(disk, b"xyz"),
    }
    with pytest.raises(OSError, match="Input/output"):
        uses[what]()
    assert file.read_at(3, 0) == b"abc"


def test_who_only_looks_meets_no_error_and_leaves_it_to_others(disk: SimDisk) -> None:
    write(disk, b"abc")
    disk.failing_reads = 1
    with disk.looked_at():
        assert disk.open(FILE).read_at(3, 0) == b"abc"
    assert disk.failing_reads == 1
