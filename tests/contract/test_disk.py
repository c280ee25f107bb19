"""The contract of every disk of a log. The disk of the simulator and that of the unit tests have to
behave like the real one."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePath

import pytest

from simulation.disk import SimDisk
from tidelog_broker.log.disk import Disk, OsDisk
from unit.broker.log.memory_disk import MemoryDisk

DISKS: dict[str, type[Disk]] = {"os": OsDisk, "simulated": SimDisk, "memory": MemoryDisk}


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, directory: PurePath) -> Disk:
    disk = DISKS[request.param]()
    disk.make_directory(directory)
    return disk


@pytest.fixture(params=["os", "simulated"])
def disk_of_directories(request: pytest.FixtureRequest, directory: PurePath) -> Disk:
    """The disk of the unit tests treats any directory as existing."""
    disk = DISKS[request.param]()
    disk.make_directory(directory)
    return disk


@pytest.fixture
def directory(tmp_path: Path) -> PurePath:
    return tmp_path / "data"


def write(disk: Disk, path: PurePath, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, [data])
    file.close()


def evict(disk: Disk, path: PurePath) -> None:
    """Skips the test if the file system does not report what the page cache holds."""
    if isinstance(disk, SimDisk):
        disk.evict()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system does not report what memory holds")
    finally:
        os.close(descriptor)


class TestFiles:
    def test_buffers_are_written_one_after_another(self, disk: Disk, directory: PurePath) -> None:
        file = disk.open(directory / "f", create=True)
        file.write_at(0, [b"ab", b"", b"cd"])
        file.write_at(4, [b"ef"])
        assert file.read_at(6, 0) == b"abcdef"
        file.close()

    def test_a_write_overwrites_existing_bytes(self, disk: Disk, directory: PurePath) -> None:
        write(disk, directory / "f", b"abcdef")
        file = disk.open(directory / "f")
        file.write_at(2, [b"XY"])
        assert file.read_at(6, 0) == b"abXYef"
        file.close()

    def test_a_write_beyond_the_end_leaves_zeros(self, disk: Disk, directory: PurePath) -> None:
        file = disk.open(directory / "f", create=True)
        file.write_at(2, [b"ab"])
        assert file.read_at(10, 0) == b"\0\0ab"
        file.close()

    def test_a_write_by_one_handle_is_read_by_another(
        self, disk: Disk, directory: PurePath
    ) -> None:
        reader = disk.open(directory / "f", create=True)
        write(disk, directory / "f", b"abc")
        assert reader.read_at(3, 0) == b"abc"
        reader.close()

    def test_a_read_beyond_the_end_is_short(self, disk: Disk, directory: PurePath) -> None:
        write(disk, directory / "f", b"abc")
        file = disk.open(directory / "f")
        assert file.read_at(10, 1) == b"bc"
        assert file.read_at(10, 3) == b""
        file.close()

    def test_cached_pages_are_read_without_waiting(self, disk: Disk, directory: PurePath) -> None:
        write(disk, directory / "f", b"abc")
        file = disk.open(directory / "f")
        assert file.read_cached(2, 1) == b"bc"
        assert file.read_cached(10, 0) == b"abc"
        assert file.read_cached(10, 3) == b""
        file.close()

    def test_a_cached_read_ends_where_only_the_disk_has_the_file(
        self, disk: Disk, directory: PurePath
    ) -> None:
        data = bytes(range(256)) * 4096
        write(disk, directory / "f", data)
        file = disk.open(directory / "f")
        evict(disk, directory / "f")
        held = file.read_cached(len(data), 0)
        assert len(held) < len(data)
        assert data.startswith(held)
        assert file.read_at(len(data), 0) == data
        assert file.read_cached(len(data), 0) == data
        file.close()

    def test_a_cut_file_ends_there(self, disk: Disk, directory: PurePath) -> None:
        write(disk, directory / "f", b"abcdef")
        file = disk.open(directory / "f")
        file.truncate(2)
        file.sync()
        file.close()
        assert disk.file_size(directory / "f") == 2
        assert disk.read_file(directory / "f") == b"ab"

    def test_opening_leaves_the_content(self, disk: Disk, directory: PurePath) -> None:
        write(disk, directory / "f", b"abc")
        disk.open(directory / "f", create=True).close()
        assert disk.read_file(directory / "f") == b"abc"

    def test_reading_a_missing_file_fails(self, disk: Disk, directory: PurePath) -> None:
        for read in (disk.open, disk.file_size, disk.read_file):
            with pytest.raises(FileNotFoundError):
                read(directory / "f")

    def test_a_removed_file_stays_readable_by_an_open_handle(
        self, disk: Disk, directory: PurePath
    ) -> None:
        write(disk, directory / "f", b"abc")
        file = disk.open(directory / "f")
        disk.remove(directory / "f")
        assert file.read_at(3, 0) == b"abc"
        file.close()
        assert disk.list_names(directory) == []

    def test_an_atomic_write_replaces_the_file_and_leaves_no_other(
        self, disk: Disk, directory: PurePath
    ) -> None:
        disk.write_atomically(directory / "f", b"old", sync=True)
        previous = disk.open(directory / "f")
        disk.write_atomically(directory / "f", b"new", sync=False)
        assert disk.read_file(directory / "f") == b"new"
        assert previous.read_at(3, 0) == b"old"
        previous.close()
        assert disk.list_names(directory) == ["f"]

    def test_a_renamed_file_replaces_its_target(self, disk: Disk, directory: PurePath) -> None:
        write(disk, directory / "f", b"new")
        write(disk, directory / "g", b"old")
        disk.rename(directory / "f", directory / "g")
        assert disk.list_names(directory) == ["g"]
        assert disk.read_file(directory / "g") == b"new"

    def test_a_missing_file_cannot_be_renamed(self, disk: Disk, directory: PurePath) -> None:
        with pytest.raises(FileNotFoundError):
            disk.rename(directory / "f", directory / "g")


class TestFileIds:
    """File ids identify a copy of a file as a copy."""

    def test_content_can_contain_the_id_of_its_file(self, disk: Disk, directory: PurePath) -> None:
        path = directory / "f"
        disk.write_with_id(path, lambda found: str(found).encode(), sync=True)
        assert disk.read_file(path) == str(disk.file_id(path)).encode()

    def test_a_rename_keeps_the_id(self, disk: Disk, directory: PurePath) -> None:
        disk.write_atomically(directory / "f", b"abc", sync=True)
        before = disk.file_id(directory / "f")
        disk.rename(directory / "f", directory / "g")
        assert disk.file_id(directory / "g") == before
        file = disk.open(directory / "g")
        file.write_at(0, [b"def"])
        file.close()
        assert disk.file_id(directory / "g") == before

    def test_a_file_that_takes_anothers_place_has_an_id_of_its_own(
        self, disk: Disk, directory: PurePath
    ) -> None:
        path = directory / "f"
        disk.write_with_id(path, lambda _: b"abc", sync=True)
        before = disk.file_id(path)
        disk.write_with_id(path, lambda _: b"abc", sync=True)
        assert not disk.file_id(path).is_same_file(before, same_boot=True)

    def test_a_copy_made_after_the_removal_has_an_id_of_its_own(
        self, disk: Disk, directory: PurePath
    ) -> None:
        """The copy may get the inode that became free."""
        path = directory / "f"
        disk.write_with_id(path, lambda _: b"abc", sync=True)
        before = disk.file_id(path)
        disk.remove(path)
        disk.write_with_id(path, lambda _: b"abc", sync=True)
        assert not disk.file_id(path).is_same_file(before, same_boot=False)

    def test_a_missing_file_has_no_id(self, disk: Disk, directory: PurePath) -> None:
        with pytest.raises(FileNotFoundError):
            disk.file_id(directory / "f")


class TestDirectories:
    def test_a_missing_directory_is_listed_as_empty(self, disk: Disk, directory: PurePath) -> None:
        assert disk.list_names(directory / "d") == []

    def test_a_listing_has_files_and_directories(self, disk: Disk, directory: PurePath) -> None:
        disk.make_directory(directory / "a" / "b")
        write(disk, directory / "a" / "b" / "f", b"")
        write(disk, directory / "g", b"")
        assert sorted(disk.list_names(directory)) == ["a", "g"]
        assert disk.list_names(directory / "a") == ["b"]

    def test_making_a_directory_again_keeps_its_content(
        self, disk: Disk, directory: PurePath
    ) -> None:
        write(disk, directory / "f", b"")
        disk.make_directory(directory)
        assert disk.list_names(directory) == ["f"]

    def test_a_directory_is_renamed_with_its_files(self, disk: Disk, directory: PurePath) -> None:
        disk.make_directory(directory / "a" / "b")
        write(disk, directory / "a" / "b" / "f", b"abc")
        disk.rename(directory / "a", directory / "c")
        disk.sync_directory(directory / "c")
        assert disk.read_file(directory / "c" / "b" / "f") == b"abc"
        assert disk.list_names(directory / "a") == []
        assert disk.list_names(directory) == ["c"]

    def test_a_tree_is_removed_and_no_neighbour(self, disk: Disk, directory: PurePath) -> None:
        for name in ("a", "ab"):
            disk.make_directory(directory / name / "b")
            write(disk, directory / name / "b" / "f", b"")
        disk.remove_tree(directory / "a")
        assert disk.list_names(directory) == ["ab"]

    def test_removing_a_missing_tree_does_nothing(self, disk: Disk, directory: PurePath) -> None:
        disk.remove(directory / "f")
        disk.remove_tree(directory / "d")
        assert disk.list_names(directory) == []

    def test_an_empty_directory_exists(
        self, disk_of_directories: Disk, directory: PurePath
    ) -> None:
        disk_of_directories.make_directory(directory / "a" / "b")
        assert disk_of_directories.list_names(directory) == ["a"]
        disk_of_directories.remove_tree(directory / "a" / "b")
        assert disk_of_directories.list_names(directory) == ["a"]

    def test_no_file_is_created_in_a_missing_directory(
        self, disk_of_directories: Disk, directory: PurePath
    ) -> None:
        disk, absent = disk_of_directories, directory / "d"
        with pytest.raises(FileNotFoundError):
            disk.open(absent / "f", create=True)
        with pytest.raises(FileNotFoundError):
            disk.write_atomically(absent / "f", b"", sync=False)
        with pytest.raises(FileNotFoundError):
            disk.sync_directory(absent)

    def test_no_directory_is_moved_into_a_missing_one(
        self, disk_of_directories: Disk, directory: PurePath
    ) -> None:
        disk_of_directories.make_directory(directory / "a")
        with pytest.raises(FileNotFoundError):
            disk_of_directories.rename(directory / "a", directory / "absent" / "a")

    def test_a_renamed_directory_does_not_replace_a_full_one(
        self, disk_of_directories: Disk, directory: PurePath
    ) -> None:
        for name in ("a", "b"):
            disk_of_directories.make_directory(directory / name)
            write(disk_of_directories, directory / name / "f", b"")
        with pytest.raises(OSError, match="not empty"):
            disk_of_directories.rename(directory / "a", directory / "b")
