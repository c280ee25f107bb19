"""A directory that a job writes and others read: each change is there as a whole or not at all,
also after a crash.

It has to lie where the driver and all executors see it under one path: a local disk, or a file
system that all of them mount.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

from tidelog.errors import ErrorCode, TidelogError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})


class Directory:
    """Paths are relative to `root`, or absolute. Every error of the file system is an `OSError`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def at(self, path: str) -> Path:
        return self.root / path

    def read(self, path: str) -> bytes | None:
        """None where there is no such file."""
        try:
            return self.at(path).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, path: str) -> list[str]:
        """Of what lies in a directory and is not hidden, in order; nothing where there is none."""
        try:
            names = (entry.name for entry in self.at(path).iterdir())
            return sorted(name for name in names if not name.startswith("."))
        except FileNotFoundError:
            return []

    def files(self, path: str) -> list[str]:
        """Paths of the files below `path` that readers of Parquet see, in order: what begins with
        `_` or `.` they pass over."""
        found: list[str] = []
        for folder, folders, names in os.walk(self.at(path)):
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
            below = Path(folder).relative_to(self.root)
            found += [str(below / name) for name in names if not name.startswith(("_", "."))]
        return sorted(found)

    def has_files(self, path: str) -> bool:
        """Whether `files` finds any."""
        return any(
            not name.startswith(("_", "."))
            for _, _, names in os.walk(self.at(path))
            for name in names
        )

    def size(self, path: str) -> int:
        return self.at(path).stat().st_size

    def create(self, path: str, content: bytes) -> None:
        """A file that is there with all of its content, and survives a loss of power. Raises
        `FileExistsError` where it is there already."""
        target = self.at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        writing = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with writing.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(writing, target)
        finally:
            writing.unlink(missing_ok=True)
        sync_directory(target.parent)

    def publish(self, staged: str, path: str) -> None:
        """Moves a file to where readers see it. Without effect where that was done before."""
        target = self.at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.at(staged).rename(target)
        except FileNotFoundError:
            if not target.exists():
                raise
        sync_directory(target.parent)

    def exchange(self, staged: str, path: str) -> None:
        """Two directories change places, in one step where the file system has such a step. Where
        it has not, there is none at `path` for a moment, and for longer after a crash, until it is
        done again. Where there is none at `path`, the staged one comes there."""
        first, second = self.at(staged), self.at(path)
        aside = first.with_name(first.name + ".former")
        if not second.exists() and not aside.exists():
            self.publish(staged, path)
            return
        if aside.exists() or not _exchanged(first, second):
            if not aside.exists():
                second.rename(aside)
            first.rename(second)
            aside.rename(first)
        sync_directory(second.parent)

    def sync(self, path: str) -> None:
        """What others have written to a file survives a loss of power."""
        sync_directory(self.at(path))

    def remove(self, path: str) -> None:
        """A file, or a directory with all that is in it; or nothing, where there is none."""
        target = self.at(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def remove_empty(self, path: str) -> None:
        """A directory without anything in it, and those above it that are then empty, below
        `root`."""
        folder = self.at(path)
        while folder != self.root and folder.is_relative_to(self.root):
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return
            folder = folder.parent

    @contextmanager
    def held(self, path: str, *, create: bool = True, of: Path | None = None) -> Iterator[None]:
        """Alone: raises `TidelogError` where another process holds it, with the name of what is
        written (`of`, by default `root`). It ends with the process, however that ends. Without
        `create` a lock that is not there is held by no process."""
        lock = self.at(path)
        if create:
            lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = lock.open("a+" if create else "r+")
        except FileNotFoundError:
            if create:
                raise
            yield
            return
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                writer = file.read().strip() or "another process"
                raise TidelogError(
                    ErrorCode.INVALID_REQUEST,
                    f"{of or self.root} is being written by {writer}; "
                    "until that has ended, or give another directory",
                ) from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            yield


def directory_at(location: str) -> Directory:
    """Raises `ValueError` for what is on no file system that is mounted here."""
    told = urlparse(location)
    if told.scheme not in ("", "file") or not told.path:
        raise ValueError(
            "must be a directory that this machine and all executors mount under one path, as "
            "/data/archive; object stores cannot rename, which the jobs rest on"
        )
    return Directory(Path(told.path).absolute())


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchanged(first: Path, second: Path) -> bool:
    """False where neither the C library nor the file system knows how."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_OFFERED:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))
