"""A disk in memory that can fill up, refuse, and lose what was not synced."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import PurePath


def _refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Inode:
    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = b""


class MemoryFile:
    def __init__(self, disk: MemoryDisk, path: PurePath, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        disk.open_files += 1

    def write_at(self, position: int, buffers: Sequence[bytes]) -> None:
        data = b"".join(buffers)
        taken = self._disk.take_space(len(data))
        self._inode.data[position : position + taken] = data[:taken]
        if taken < len(data):
            raise _refusal(errno.ENOSPC)

    def read_at(self, size: int, position: int) -> bytes:
        self._disk.reads.append((self._path, size))
        return bytes(self._inode.data[position : position + size])

    def truncate(self, size: int) -> None:
        if self._disk.fail_truncate:
            raise _refusal(errno.EIO)
        del self._inode.data[size:]

    def sync(self) -> None:
        if self._disk.fail_sync:
            raise _refusal(errno.EIO)
        self._inode.synced = bytes(self._inode.data)

    def close(self) -> None:
        self._disk.open_files -= 1


class MemoryDisk:
    """`space`: bytes that can still be written; None: no limit. Directories themselves
    are always durable; the names in one are as of its last sync."""

    def __init__(self) -> None:
        self.names: dict[PurePath, Inode] = {}
        self._synced_names: dict[PurePath, Inode] = {}
        self.reads: list[tuple[PurePath, int]] = []
        self.space: int | None = None
        self.fail_sync = False
        self.fail_truncate = False
        self.open_files = 0

    def take_space(self, wanted: int) -> int:
        if self.space is None:
            return wanted
        taken = min(wanted, self.space)
        self.space -= taken
        return taken

    def power_failure(self, rng: random.Random | None = None) -> None:
        """Leaves what was synced, and with `rng` some of the rest: any of the names that
        were made or removed since, and of each file the beginning of what was added."""
        survived = dict(self._synced_names)
        if rng is not None:
            for path in sorted({*self.names, *survived}):
                if self.names.get(path) is not survived.get(path) and rng.random() < 0.5:
                    if path in self.names:
                        survived[path] = self.names[path]
                    else:
                        del survived[path]
        self.names = survived
        self._synced_names = dict(survived)
        for inode in survived.values():
            kept = len(inode.synced)
            if rng is not None and inode.data.startswith(inode.synced):
                kept = rng.randint(kept, len(inode.data))
                inode.synced = bytes(inode.data[:kept])
            inode.data = bytearray(inode.synced)

    def open(self, path: PurePath, *, create: bool = False) -> MemoryFile:
        if path not in self.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            if self.space == 0:
                raise _refusal(errno.ENOSPC)
            self.names[path] = Inode()
        return MemoryFile(self, path, self.names[path])

    def file_size(self, path: PurePath) -> int:
        return len(self.names[path].data)

    def read_file(self, path: PurePath) -> bytes:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.reads.append((path, self.file_size(path)))
        return bytes(self.names[path].data)

    def write_atomically(self, path: PurePath, data: bytes, *, sync: bool) -> None:
        if self.take_space(len(data)) < len(data):
            raise _refusal(errno.ENOSPC)
        inode = Inode(data)
        self.names[path] = inode
        if sync:
            if self.fail_sync:
                raise _refusal(errno.EIO)
            inode.synced = data
            self.sync_directory(path.parent)

    def list_names(self, directory: PurePath) -> list[str]:
        below = [path for path in self.names if path.is_relative_to(directory)]
        return list(dict.fromkeys(path.relative_to(directory).parts[0] for path in below))

    def make_directory(self, directory: PurePath) -> None:
        pass

    def sync_directory(self, directory: PurePath) -> None:
        if self.fail_sync:
            raise _refusal(errno.EIO)
        others = {p: i for p, i in self._synced_names.items() if p.parent != directory}
        present = {p: i for p, i in self.names.items() if p.parent == directory}
        self._synced_names = others | present

    def remove(self, path: PurePath) -> None:
        self.names.pop(path, None)

    def rename(self, source: PurePath, target: PurePath) -> None:
        self.names = {
            target / path.relative_to(source) if path.is_relative_to(source) else path: inode
            for path, inode in self.names.items()
        }

    def remove_tree(self, directory: PurePath) -> None:
        for path in [path for path in self.names if path.is_relative_to(directory)]:
            del self.names[path]
