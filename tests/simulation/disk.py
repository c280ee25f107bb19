"""The disk of a machine.

A power failure keeps what was synced and a random part of the rest. The disk fills up, fails
reads, writes and syncs, and flips bits. What a failed sync could not write, no later sync of
the same file writes either.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from simulation.inode import Inode
from simulation.power_failure import PAGE_BYTES as PAGE_BYTES
from simulation.power_failure import lose_unsynced
from tidelog.log_format import SEGMENT_SUFFIX
from tidelog_broker.log.disk import Tree
from tidelog_broker.log.file_id import FileId


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _missing(path: PurePath) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


class SimFile:
    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, disk: SimDisk, path: PurePath, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def write_at(self, position: int, buffers: Sequence[bytes]) -> None:
        data = b"".join(buffers)
        self._disk.check_write()
        inode = self._inode
        # Bytes that replace others take no space.
        present = max(min(len(inode.data) - position, len(data)), 0)
        taken = present + self._disk.take_space(len(data) - present)
        inode.keep_synced(position)
        if position > len(inode.data):
            inode.data.extend(bytes(position - len(inode.data)))
        inode.data[position : position + taken] = data[:taken]
        inode.written(position, position + taken)
        inode.touch(position, position + taken)
        if taken < len(data):
            raise os_error(errno.ENOSPC)

    def read_at(self, size: int, position: int) -> bytes:
        self._disk.check_read(self._path)
        self._disk.check_sectors(self._path, self._inode, position, position + size)
        self._inode.touch(position, position + size)
        return bytes(self._inode.data[position : position + size])

    def read_cached(self, size: int, position: int) -> bytes:
        held = self._inode.first_cold(position, position + size) - position
        return self.read_at(held, position) if held else b""

    def drop_cached(self, size: int, position: int) -> None:
        """Does nothing: the cache and the disk are the same here."""

    def read_ahead(self, size: int, position: int) -> None:
        """Does nothing: a later read of it need not wait."""

    def truncate(self, size: int) -> None:
        self._inode.keep_synced(size)
        gone = len(self._inode.data)
        del self._inode.data[size:]
        self._inode.written(size, gone)

    def sync(self) -> None:
        try:
            self._disk.check_sync()
            if self._path.suffix == SEGMENT_SUFFIX and not self._inode.is_synced:
                self._disk.check_segment_sync()
        except OSError:
            self._inode.fail_sync()
            raise
        self._inode.sync()

    def close(self) -> None:
        pass


class SimDisk:
    """The files of a machine, and the faults of its disk.

    - `space`: bytes that can still be written; None: no limit
    - `failing_syncs`: how many syncs of files or directories fail from now on
    - `failing_segment_syncs`: the same for segments with unsynced data
    - `failing_reads`, `failing_writes`: the same for reads and writes of open files
    - `hanging`: "syncs": the syncs that producers wait for do not begin; "all": nothing does that
      threads do at the disk; "": neither
    - `failed`: numbers of failures, by "sync", "read", "write", "sector", "space" and "hang"
    - `flipped`, `spoiled`: numbers of damaged bits and sectors
    - `rewritten`: how many files replaced one whose failed sync left it uncertain

    Directories themselves are always durable; the names in one are as of its last sync.
    """

    def __init__(self) -> None:
        self._directories: dict[PurePath, dict[str, Inode]] = {}
        self._durable: dict[PurePath, dict[str, Inode]] = {}
        self.space: int | None = None
        self.failing_syncs = self.failing_segment_syncs = 0
        self.failing_reads = self.failing_writes = 0
        self.hanging = ""
        self.rewritten = self.flipped = self.spoiled = 0
        # Whether no broker has written since a copy was made here.
        self._is_new_copy = False
        self.failed: Counter[str] = Counter()
        self._next_inode = 1
        self._directory_ids: dict[PurePath, FileId] = {}
        # Increases with each wipe, after which inode numbers begin again.
        self._birth_ns = 1

    # -- faults ------------------------------------------------------------------------

    def take_space(self, requested: int) -> int:
        if self.space is None:
            return requested
        taken = min(requested, self.space)
        self.space -= taken
        self.failed["space"] += taken < requested
        return taken

    def check_sync(self) -> None:
        if self.failing_syncs:
            self.failing_syncs -= 1
            self.failed["sync"] += 1
            raise os_error(errno.EIO)

    def check_segment_sync(self) -> None:
        if self.failing_segment_syncs:
            self.failing_segment_syncs -= 1
            self.failed["sync"] += 1
            raise os_error(errno.EIO)

    def check_read(self, path: PurePath) -> None:
        if self.failing_reads:
            self.failing_reads -= 1
            self.failed["read"] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def check_sectors(self, path: PurePath, inode: Inode, start: int, end: int) -> None:
        if any(start < (page + 1) * PAGE_BYTES and page * PAGE_BYTES < end for page in inode.bad):
            self.failed["sector"] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def check_write(self) -> None:
        if self.failing_writes:
            self.failing_writes -= 1
            self.failed["write"] += 1
            raise os_error(errno.EIO)

    def hangs(self, *, syncs: bool) -> bool:
        """Whether work of a thread waits. `syncs`: it is a sync that producers wait for."""
        does = self.hanging == "all" or (syncs and self.hanging == "syncs")
        self.failed["hang"] += does
        return does

    def repair(self) -> None:
        """Ends the faults: there is room, and nothing fails or hangs any more."""
        self.hanging = ""
        self.space = None
        self.failing_syncs = self.failing_segment_syncs = 0
        self.failing_reads = self.failing_writes = 0

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """Suspends read errors, which are meant for the users of the disk."""
        failing, self.failing_reads = self.failing_reads, 0
        try:
            yield
        finally:
            self.failing_reads = failing

    def durable_bytes(self, path: PurePath) -> int | None:
        """Returns how many bytes from the file's start on are on the disk as they are in memory.

        It is 0 without a durable name, and None if there is no such file.
        """
        inode = self._directories.get(path.parent, {}).get(path.name)
        if inode is None:
            return None
        if self._durable.get(path.parent, {}).get(path.name) is not inode:
            return 0
        if inode.before is None:
            return inode.synced_bytes
        pairs = zip(inode.before, inode.data, strict=False)
        shorter = min(len(inode.before), len(inode.data))
        return next((n for n, (kept, now) in enumerate(pairs) if kept != now), shorter)

    def power_failure(self, rng: random.Random) -> int:
        """Keeps what was synced and a random part of the rest.

        Returns how many bytes and names are gone or are back. A copy on which no broker has
        started is synced first: no broker can detect that the copying itself was cut off
        (docs/adr/0001).
        """
        if self._is_new_copy:
            self._sync_all()
        lost = 0
        for directory in sorted({*self._directories, *self._durable}):
            now = self._directories.get(directory, {})
            kept = dict(self._durable.get(directory, {}))
            for name in sorted({*now, *kept}):
                if now.get(name) is not kept.get(name):
                    if rng.random() >= 0.5:
                        lost += 1
                    elif name in now:
                        kept[name] = now[name]
                    else:
                        del kept[name]
            for inode in kept.values():
                lost += lose_unsynced(inode, rng)
            self._directories[directory] = kept
            self._durable[directory] = dict(kept)
        return lost

    def _sync_all(self) -> None:
        for directory, names in self._directories.items():
            self._durable[directory] = dict(names)
            for inode in names.values():
                inode.sync()

    def wipe(self) -> None:
        self._directories.clear()
        self._durable.clear()
        self._directory_ids.clear()
        self._start_numbering_again()
        self._is_new_copy = False

    def _start_numbering_again(self) -> None:
        """Reuses inode numbers, as real file systems do: only the birth time differs."""
        self._next_inode = 1
        self._birth_ns += 1

    def contents(self) -> dict[PurePath, bytes]:
        """Returns the contents of every file, as a backup has them."""
        return {path: bytes(self._inode(path).data) for path in self.paths()}

    def restore(self, contents: Mapping[PurePath, bytes]) -> None:
        """Replaces everything by new files with these contents, as cp, rsync and tar do.

        Nothing of them is synced.
        """
        self.wipe()
        for path, data in contents.items():
            self.make_directory(path.parent)
            self._directories[path.parent][path.name] = Inode(data)
        self._is_new_copy = True

    def restore_in_place(self, contents: Mapping[PurePath, bytes]) -> None:
        """Restores over the present files, as `cp -a backup/. data/` does.

        A file of the same name stays the same file. Files that the backup lacks are removed.
        """
        kept = {path: self._inode(path).id for path in self.paths() if path in contents}
        numbering = self._birth_ns, self._next_inode
        directories = dict(self._directory_ids)
        self.restore(contents)
        self._directory_ids.update(directories)
        self._birth_ns, self._next_inode = numbering
        for path, number in kept.items():
            self._inode(path).id = number

    def linked(self) -> dict[PurePath, Inode]:
        """Returns a copy by hard links, as `cp -al` makes one: it shares what is written later to
        a file, and not what replaces the file."""
        links = {path: self._inode(path) for path in self.paths()}
        for inode in links.values():
            inode.linked = True
        return links

    def restore_links(self, links: Mapping[PurePath, Inode]) -> None:
        """Replaces everything by a copy by hard links, whose names are not synced."""
        self._directories.clear()
        self._durable.clear()
        self._directory_ids.clear()
        for path, inode in links.items():
            self.make_directory(path.parent)
            self._directories[path.parent][path.name] = inode
        self._is_new_copy = True

    def evict(self) -> None:
        """Drops all files from memory."""
        for names in self._directories.values():
            for inode in names.values():
                inode.evict()

    def flip_bit(self, path: PurePath, position: int, bit: int) -> None:
        """Flips a bit, also in what is durable."""
        inode = self._inode(path)
        inode.data[position] ^= 1 << bit
        self.flipped += 1
        if inode.before is not None and position < len(inode.before):
            before = bytearray(inode.before)
            before[position] ^= 1 << bit
            inode.before = bytes(before)

    def spoil(self, path: PurePath, position: int) -> None:
        """Makes a sector unreadable; a copy of the file has other sectors."""
        self._inode(path).bad.add(position // PAGE_BYTES)
        self.spoiled += 1

    def paths(self) -> list[PurePath]:
        """Returns the paths of all files."""
        return sorted(d / name for d, names in self._directories.items() for name in names)

    # -- the interface that the log uses -------------------------------------------------

    def open(self, path: PurePath, *, create: bool = False) -> SimFile:
        return SimFile(self, path, self.opened(path, create=create))

    def opened(self, path: PurePath, *, create: bool) -> Inode:
        names = self.names_in(path.parent)
        inode = names.get(path.name)
        if inode is None:
            if not create:
                raise _missing(path)
            if self.space == 0:
                self.failed["space"] += 1
                raise os_error(errno.ENOSPC)
            inode = names[path.name] = Inode()
        return inode

    def file_size(self, path: PurePath) -> int:
        return len(self._inode(path).data)

    def read_file(self, path: PurePath) -> bytes:
        inode = self._inode(path)
        self.check_sectors(path, inode, 0, len(inode.data))
        inode.touch(0, len(inode.data))
        return bytes(inode.data)

    def write_atomically(self, path: PurePath, data: bytes, *, sync: bool) -> None:
        names = self.names_in(path.parent)
        if self.take_space(len(data)) < len(data):
            raise os_error(errno.ENOSPC)
        inode = Inode(data)
        if sync:
            self.check_sync()
            inode.sync()
        names[path.name] = inode
        self._is_new_copy = False
        if sync:
            self.sync_directory(path.parent)

    def write_with_id(
        self, path: PurePath, render: Callable[[FileId], bytes], *, sync: bool
    ) -> None:
        number = self._new_id()
        self.write_atomically(path, render(number), sync=sync)
        self._inode(path).id = number

    def file_id(self, path: PurePath) -> FileId:
        if path in self._directories:
            if path not in self._directory_ids:
                self._directory_ids[path] = self._new_id()
            return self._directory_ids[path]
        inode = self._inode(path)
        if inode.id is None:
            inode.id = self._new_id()
        return inode.id

    def _new_id(self) -> FileId:
        number = FileId(1, self._next_inode, self._birth_ns)
        self._next_inode += 1
        return number

    def list_names(self, directory: PurePath) -> list[str]:
        names = list(self._directories.get(directory, ()))
        depth = len(directory.parts)
        below = {
            other.parts[depth]: None
            for other in self._directories
            if len(other.parts) > depth and other.parts[:depth] == directory.parts
        }
        return list(dict.fromkeys([*names, *below]))

    def tree(self, directory: PurePath) -> Tree:
        below = sorted(d for d in self._directories if d.is_relative_to(directory))
        files = [p for p in self.paths() if p.is_relative_to(directory)]
        return Tree(files, below, {p for p in files if self._inode(p).linked})

    def make_directory(self, directory: PurePath) -> None:
        for made in (directory, *directory.parents):
            self._directories.setdefault(made, {})
            self._durable.setdefault(made, {})

    def sync_directory(self, directory: PurePath) -> None:
        names = self.names_in(directory)
        self.check_sync()
        self._durable[directory] = dict(names)

    def remove(self, path: PurePath) -> None:
        self._directories.get(path.parent, {}).pop(path.name, None)

    def rename(self, source: PurePath, target: PurePath) -> None:
        """Renames a file or a directory.

        A directory's new name is durable at once, with the names in it as they were.
        """
        there = self.names_in(target.parent)
        moved = self._directories.get(source.parent, {}).pop(source.name, None)
        if moved is not None:
            replaced = there.get(target.name)
            if replaced is not None and replaced.dropped is not None:
                self.rewritten += 1
            there[target.name] = moved
            return
        if source not in self._directories:
            raise _missing(source)
        if self.list_names(target):
            raise os_error(errno.ENOTEMPTY)
        for state in (self._directories, self._durable):
            for directory in [d for d in state if d.is_relative_to(source)]:
                state[target / directory.relative_to(source)] = state.pop(directory)

    def remove_tree(self, directory: PurePath) -> None:
        for state in (self._directories, self._durable):
            for below in [d for d in state if d.is_relative_to(directory)]:
                del state[below]

    def allocate(self, path: PurePath, size: int) -> None:
        if path.name not in self.names_in(path.parent):
            self.write_atomically(path, bytes(size), sync=False)

    def check_append_room(self) -> None:
        """Does nothing: this disk reserves no room."""

    def _inode(self, path: PurePath) -> Inode:
        inode = self._directories.get(path.parent, {}).get(path.name)
        if inode is None:
            raise _missing(path)
        return inode

    def names_in(self, directory: PurePath) -> dict[str, Inode]:
        """Returns the files of a directory that exists."""
        names = self._directories.get(directory)
        if names is None:
            raise _missing(directory)
        return names
