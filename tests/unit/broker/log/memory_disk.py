"""The simulator's disk for tests of single modules. It counts opens and reads, and can reject
all syncs or truncations. Without randomness a power failure leaves only synced data.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Mapping
from pathlib import PurePath

from simulation.disk import SimDisk, SimFile, os_error
from simulation.inode import Inode


class MemoryFile(SimFile):
    __slots__ = ("_counts",)

    def __init__(self, disk: MemoryDisk, path: PurePath, inode: Inode) -> None:
        super().__init__(disk, path, inode)
        self._counts = disk
        disk.open_files += 1

    def read_at(self, size: int, position: int) -> bytes:
        self._counts.reads.append((self._path, size))
        if self._inode.first_cold(position, position + size) < position + size:
            self._counts.waits += 1
        return super().read_at(size, position)

    def truncate(self, size: int) -> None:
        if self._counts.fail_truncate:
            raise os_error(errno.EIO)
        super().truncate(size)

    def close(self) -> None:
        self._counts.open_files -= 1


class MemoryDisk(SimDisk):
    """`reads` has the path and size of each read. `waits` counts the reads that had to wait for
    the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[PurePath, int]] = []
        self.waits = 0
        self.fail_sync = False
        self.fail_truncate = False
        self.open_files = 0

    @property
    def names(self) -> Mapping[PurePath, Inode]:
        """All file names."""
        return {
            directory / name: inode
            for directory, names in self._directories.items()
            for name, inode in names.items()
        }

    @names.setter
    def names(self, files: Mapping[PurePath, Inode]) -> None:
        for names in self._directories.values():
            names.clear()
        for path, inode in files.items():
            self._directories.setdefault(path.parent, {})[path.name] = inode

    def check_sync(self) -> None:
        if self.fail_sync:
            raise os_error(errno.EIO)

    def power_failure(self, rng: random.Random | None = None) -> int:
        if rng is not None:
            return super().power_failure(rng)
        for directory in self._directories:
            self._directories[directory] = dict(self._durable.get(directory, {}))
        for inode in self.names.values():
            inode.data = bytearray(inode.durable)
            inode.sync()
        return 0

    def names_in(self, directory: PurePath) -> dict[str, Inode]:
        """Every directory counts as existing."""
        return self._directories.setdefault(directory, {})

    def write_atomically(self, path: PurePath, data: bytes, *, sync: bool) -> None:
        replaced, space = self.names_in(path.parent).get(path.name), self.space
        try:
            super().write_atomically(path, data, sync=sync)
        except OSError:
            self.space = space
            raise
        self._give_back(replaced)

    def remove(self, path: PurePath) -> None:
        self._give_back(self.names_in(path.parent).get(path.name))
        super().remove(path)

    def remove_tree(self, directory: PurePath) -> None:
        for path, inode in self.names.items():
            if path.is_relative_to(directory):
                self._give_back(inode)
        super().remove_tree(directory)

    def _give_back(self, gone: Inode | None) -> None:
        """A removed file returns its space."""
        if gone is not None and self.space is not None:
            self.space += len(gone.data)

    def open(self, path: PurePath, *, create: bool = False) -> MemoryFile:
        return MemoryFile(self, path, self.opened(path, create=create))

    def read_file(self, path: PurePath) -> bytes:
        data = super().read_file(path)
        self.reads.append((path, len(data)))
        return data
