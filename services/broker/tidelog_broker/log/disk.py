"""The disk interface of the log, and its implementation by the operating system.

All file access of the log goes through `Disk`, so that a simulator can lose unsynced data and tear
interrupted writes. All methods raise `OSError`."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

from tidelog_broker.log.file_id import FileId, file_id

# The kernel takes at most this many buffers in one vectored write.
_MAX_BUFFERS = 1024
_COPY_BYTES = 1 << 20
# Errors of non-blocking reads on file systems that lack them, and in sandboxes.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
# Before a read of at least this size, a read of one byte checks that something is cached.
_PROBED_BYTES = 64 << 10
# The kernel drops only folios that lie within the range. A folio is at least a page, and at most
# this large.
_MAX_FOLIO_BYTES = 2 << 20
TEMPORARY_SUFFIX = ".tmp"


class DiskFile(Protocol):
    """An open file. Other handles read at once what one handle wrote."""

    def write_at(self, position: int, buffers: Sequence[bytes]) -> None:
        """Writes the buffers one after another. On an error a part may have been written."""

    def read_at(self, size: int, position: int) -> bytes:
        """Returns fewer bytes only at the end of the file. An error names the file."""

    def read_cached(self, size: int, position: int) -> bytes | bytearray:
        """Like `read_at`, but without waiting for the disk: ends at the first byte that is not in
        the page cache. Waits if the file system does not support this."""

    def drop_cached(self, size: int, position: int) -> None:
        """Drops every clean page with a byte of this part from the page cache, so that the next
        read is from the disk. Dirty pages stay. Has no effect if the system does not support it."""

    def read_ahead(self, size: int, position: int) -> None:
        """Starts to read this part into the page cache. Later reads of this handle bring nothing
        there but what they return. Has no effect if the system does not support it."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Makes durable what any handle wrote to this file. May run in a thread."""

    def close(self) -> None: ...


class Tree(NamedTuple):
    """Files and directories below a directory.

    - `directories`: contains that directory, too
    - `linked`: those of the files that have other names as well (hard links)
    """

    files: list[PurePath]
    directories: list[PurePath]
    linked: set[PurePath]


class Disk(Protocol):
    def open(self, path: PurePath, *, create: bool = False) -> DiskFile:
        """Opens for reading and writing. `create` allows the file to be new."""

    def file_size(self, path: PurePath) -> int: ...

    def read_file(self, path: PurePath) -> bytes: ...

    def write_atomically(self, path: PurePath, data: bytes, *, sync: bool) -> None:
        """Replaces a file; a reader sees the old content or the new one.

        With `sync` this holds after a power failure, too. Without it, a power failure may leave the
        old content, the new one or a torn file."""

    def write_with_id(
        self, path: PurePath, render: Callable[[FileId], bytes], *, sync: bool
    ) -> None:
        """Like `write_atomically`, for content that contains the id of the file that holds it."""

    def file_id(self, path: PurePath) -> FileId:
        """Returns the id of a file or a directory. A rename keeps it; a copy and a replacement have
        another one."""

    def list_names(self, directory: PurePath) -> list[str]:
        """Returns nothing for a directory that does not exist."""

    def tree(self, directory: PurePath) -> Tree:
        """Returns all that is below the directory, in a fixed order, without links."""

    def make_directory(self, directory: PurePath) -> None:
        """Creates a directory with its parents. Does nothing if it exists."""

    def sync_directory(self, directory: PurePath) -> None:
        """Makes names durable that were created or removed in it. May run in a thread."""

    def remove(self, path: PurePath) -> None:
        """Removes a file. Does nothing if it does not exist."""

    def rename(self, source: PurePath, target: PurePath) -> None:
        """Renames a file or a directory with its content. A file replaces its target."""

    def remove_tree(self, directory: PurePath) -> None:
        """Removes a directory. Does nothing if it does not exist."""

    def allocate(self, path: PurePath, size: int) -> None:
        """Allocates the blocks of a file; completes an existing one. Leaves none on an error."""

    def check_append_room(self) -> None:
        """Raises ENOSPC before an append if the room that is reserved for state files is in use."""


def copy_bytes(source: DiskFile, target: DiskFile, start: int, end: int) -> None:
    """Copies bytes to the same position. With `target` the source itself, the next sync writes them
    again."""
    for position in range(start, end, _COPY_BYTES):
        size = min(_COPY_BYTES, end - position)
        target.write_at(position, [source.read_at(size, position)])


def _find(directory: PurePath, tree: Tree) -> None:
    tree.directories.append(directory)
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            _find(directory / entry.name, tree)
        elif entry.is_file(follow_symlinks=False):
            path = directory / entry.name
            tree.files.append(path)
            if entry.stat(follow_symlinks=False).st_nlink > 1:
                tree.linked.add(path)


# Operations whose times are measured.
READ, WRITE, SYNC, OPEN, CHANGE = "read", "write", "sync", "open", "change of a directory"
# Wraps each operation that may wait for the disk, to measure it. May run in several threads.
Timed = Callable[[str], AbstractContextManager[None]]


def untimed(_: str) -> AbstractContextManager[None]:
    return nullcontext()


class OsFile:
    def __init__(self, path: PurePath, create: bool, timed: Timed = untimed) -> None:
        self._path = path
        self._timed = timed
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with timed(OPEN):
            self._descriptor = os.open(path, flags, 0o644)
        self._can_read_cached = True

    def write_at(self, position: int, buffers: Sequence[bytes]) -> None:
        with self._timed(WRITE):
            for first in range(0, len(buffers), _MAX_BUFFERS):
                position = self._write_all(position, buffers[first : first + _MAX_BUFFERS])

    def _write_all(self, position: int, buffers: Sequence[bytes]) -> int:
        written = os.pwritev(self._descriptor, buffers, position)
        end = position + sum(map(len, buffers))
        position += written
        if position < end:
            # The kernel may write a part, and return the error only at the next attempt.
            rest = memoryview(b"".join(buffers))[written:]
            while rest:
                written = os.pwrite(self._descriptor, rest, position)
                rest = rest[written:]
                position += written
        return position

    def read_at(self, size: int, position: int) -> bytes:
        with self._timed(READ):
            return self._read_all(size, position)

    def _read_all(self, size: int, position: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size:
                return data
            parts = [data]
            while data and (missing := size - sum(map(len, parts))):
                data = os.pread(self._descriptor, missing, position + size - missing)
                parts.append(data)
        except OSError as error:
            error.filename = str(self._path)
            raise
        return b"".join(parts)

    def read_cached(self, size: int, position: int) -> bytes | bytearray:
        if self._can_read_cached:
            try:
                if size >= _PROBED_BYTES:
                    os.preadv(self._descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
                buffer = bytearray(size)
                read = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
            except BlockingIOError:
                return b""
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    error.filename = str(self._path)
                    raise
                self._can_read_cached = False
            else:
                del buffer[read:]
                return buffer
        return self.read_at(size, position)

    def drop_cached(self, size: int, position: int) -> None:
        if not hasattr(os, "posix_fadvise") or size <= 0:
            return
        start, end = _rounded_out(position, position + size, mmap.PAGESIZE)
        os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
        # What is left may lie in a large folio that begins before the range or ends behind it.
        # Or its page is dirty: then nothing more is dropped at the other end, where readers may be.
        first, last = _rounded_out(start, end, _MAX_FOLIO_BYTES)
        first = first if self.read_cached(1, position) else start
        last = last if self.read_cached(1, position + size - 1) else end
        if (first, last) != (start, end):
            os.posix_fadvise(self._descriptor, first, last - first, os.POSIX_FADV_DONTNEED)

    def read_ahead(self, size: int, position: int) -> None:
        if hasattr(os, "posix_fadvise") and size > 0:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_WILLNEED)

    def truncate(self, size: int) -> None:
        with self._timed(WRITE):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        with self._timed(SYNC):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def _rounded_out(start: int, end: int, unit: int) -> tuple[int, int]:
    """Returns the smallest range of whole units that contains the given one.

    >>> _rounded_out(4_095, 8_193, 4_096)
    (0, 12288)
    """
    return start - start % unit, end + -end % unit


class OsDisk:
    """The operating system's disk.

    Paths are passed on as they are: a start stats several files of each of ten thousand logs, and
    creating a `Path` takes longer than the system call."""

    def __init__(self, timed: Timed = untimed) -> None:
        self._timed = timed

    def open(self, path: PurePath, *, create: bool = False) -> OsFile:
        return OsFile(path, create, self._timed)

    def file_size(self, path: PurePath) -> int:
        return os.stat(path).st_size  # noqa: PTH116

    def read_file(self, path: PurePath) -> bytes:
        with self._timed(READ), open(path, "rb") as file:  # noqa: PTH123
            return file.read()

    def write_atomically(self, path: PurePath, data: bytes, *, sync: bool) -> None:
        self._replace(path, lambda _: data, sync=sync)

    def write_with_id(
        self, path: PurePath, render: Callable[[FileId], bytes], *, sync: bool
    ) -> None:
        self._replace(path, lambda descriptor: render(file_id(descriptor)), sync=sync)

    def file_id(self, path: PurePath) -> FileId:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return file_id(descriptor)
        finally:
            os.close(descriptor)

    def _replace(self, path: PurePath, data_for: Callable[[int], bytes], *, sync: bool) -> None:
        temporary = f"{path}{TEMPORARY_SUFFIX}"
        try:
            self._write_new(temporary, data_for, sync=sync)
        except OSError as error:
            # On a full disk the partial file would take room that others need.
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            # The errors of a write and of a sync do not name the file.
            error.filename = error.filename or str(path)
            raise
        with self._timed(CHANGE):
            os.replace(temporary, path)  # noqa: PTH105
        if sync:
            self.sync_directory(path.parent)

    def _write_new(self, path: str, data_for: Callable[[int], bytes], *, sync: bool) -> None:
        with open(path, "wb", buffering=0) as file:  # noqa: PTH123
            # A raw file may write only a part.
            rest = memoryview(data_for(file.fileno()))
            with self._timed(WRITE):
                while rest:
                    rest = rest[file.write(rest) :]
            if sync:
                with self._timed(SYNC):
                    os.fsync(file.fileno())

    def list_names(self, directory: PurePath) -> list[str]:
        try:
            return os.listdir(directory)  # noqa: PTH208
        except FileNotFoundError:
            return []

    def tree(self, directory: PurePath) -> Tree:
        tree = Tree([], [], set())
        _find(directory, tree)
        return tree

    def make_directory(self, directory: PurePath) -> None:
        Path(directory).mkdir(parents=True, exist_ok=True)

    def sync_directory(self, directory: PurePath) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._timed(SYNC):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: PurePath) -> None:
        with self._timed(CHANGE), suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108

    def rename(self, source: PurePath, target: PurePath) -> None:
        with self._timed(CHANGE):
            Path(source).rename(target)

    def remove_tree(self, directory: PurePath) -> None:
        if Path(directory).exists():
            shutil.rmtree(directory)

    def allocate(self, path: PurePath, size: int) -> None:
        with open(path, "ab", buffering=0) as file:  # noqa: PTH123
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.write(bytes(size - file.tell()))
            except OSError:
                self.remove(path)
                raise

    def check_append_room(self) -> None:
        """Does nothing: no room is reserved here."""
