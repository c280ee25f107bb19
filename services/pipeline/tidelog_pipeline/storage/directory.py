"""A directory that a job writes and others read. Each change is atomic, even in a crash.

The driver and all executors must see it under the same path: a local disk, or a file system
that all of them mount.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidelog.errors import ErrorCode, TidelogError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
# Errors that a lost or damaged file causes; None: the content is at fault. Any other error, such as
# a denied permission or too many open files, says nothing about the file.
_OF_THE_FILE = frozenset(
    {
        None,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.EIO,
        errno.EBADMSG,
        errno.EUCLEAN,
        # File systems report unreadable sectors as ENODATA, and a damaged name as EILSEQ.
        errno.ENODATA,
        errno.EILSEQ,
    }
)
# `create` writes to a hidden name with a random token until the content is complete.
_TOKEN_BYTES = 8
_UNFINISHED = re.compile(rf"\..+\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}", re.DOTALL)
_IS_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_RIGHT = (
    "must be a directory that this machine and all executors mount under one path, as "
    "/data/archive; object stores cannot rename, which the jobs depend on"
)


class Directory:
    """Operations on the files of one directory.

    Paths are relative to `root`, or absolute. Every error of the file system is an `OSError`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def at(self, path: str) -> Path:
        return self.root / path

    def read(self, path: str) -> bytes | None:
        """Returns None if the file does not exist."""
        try:
            return self.at(path).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, path: str) -> list[str]:
        """Returns the sorted names that are not hidden; empty if there is no directory."""
        try:
            names = (entry.name for entry in self.at(path).iterdir())
            return sorted(name for name in names if not name.startswith("."))
        except FileNotFoundError:
            return []

    def files(self, path: str) -> list[str]:
        """Returns the sorted paths of the files below `path` that Parquet readers see.

        These readers ignore names that begin with `_` or `.`. Raises `OSError` for a directory that
        cannot be listed: its files are not missing.
        """
        found: list[str] = []
        for folder, names in self._visible(path):
            below = Path(folder).relative_to(self.root)
            found += [str(below / name) for name in names]
        return sorted(found)

    def has_files(self, path: str) -> bool:
        """Returns whether `files` finds any."""
        return any(names for _, names in self._visible(path))

    def _visible(self, path: str) -> Iterator[tuple[str, list[str]]]:
        """Yields the directories that Parquet readers see, each with the names of its files."""
        for folder, folders, names in os.walk(self.at(path), onerror=_raise_unless_missing):
            folders[:] = [name for name in folders if not _is_hidden(name)]
            yield folder, [name for name in names if not _is_hidden(name)]

    def create(self, path: str, content: bytes) -> None:
        """Creates a file with all of its content, which survives a loss of power.

        Raises `FileExistsError` if the file exists.
        """
        target = self.at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        # A process that was killed may have left a second name of an existing file. In containers,
        # all processes have the same id.
        writing = target.with_name(f".{target.name}.{secrets.token_hex(_TOKEN_BYTES)}")
        try:
            with writing.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(writing, target)
        finally:
            writing.unlink(missing_ok=True)
        sync_directory(target.parent)

    def remove_unfinished(self, path: str) -> None:
        """Removes files that processes were creating in this directory when they were killed.

        Only for a directory in which no other process creates files.
        """
        try:
            names = [entry.name for entry in self.at(path).iterdir()]
        except FileNotFoundError:
            return
        for name in names:
            if _UNFINISHED.fullmatch(name):
                self.at(f"{path}/{name}").unlink(missing_ok=True)

    def publish(self, staged: str, path: str) -> None:
        """Moves a staged file to its public path. Has no effect if it was moved before."""
        target = self.at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.at(staged).rename(target)
        except FileNotFoundError:
            if not target.exists():
                raise
        sync_directory(target.parent)

    def exchange(self, staged: str, path: str) -> None:
        """Exchanges two directories; if `path` does not exist, moves the staged one there.

        The exchange is one step if the file system supports it. Otherwise `path` does not exist
        for a moment, or after a crash until the exchange is repeated.
        """
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
        """Makes what others have written to a directory survive a loss of power."""
        sync_directory(self.at(path))

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with all its content, if it exists."""
        target = self.at(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def remove_empty(self, path: str) -> None:
        """Removes an empty directory, and then its parents below `root` that are empty."""
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
        """Holds an exclusive lock, which ends with the process at the latest.

        - `create`: if False and the lock's file does not exist, no process holds it, and none
          is created.
        - `of`: the written directory that messages name; default: `root`.

        Raises `TidelogError` if another process holds the lock.
        """
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
                    f"{of or self.root} is being written by {writer}; wait until it has ended, or "
                    "give another directory",
                ) from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            yield


def directory_at(location: str) -> Directory:
    """Returns the directory of a path, or of a URI `file:///data/archive`.

    Raises `ValueError` for a location that is not on a mounted file system, and for `/`.
    """
    if not location:
        raise ValueError(_RIGHT)
    path = Path(_path_of_uri(location) if _IS_URI.match(location) else location).absolute()
    if path.name == "..":
        # Names beside the directory are derived from its own name.
        path = path.resolve()
    if not path.name:
        raise ValueError(_RIGHT)
    return Directory(path)


def _path_of_uri(uri: str) -> str:
    """Only a URI has escaped characters, a query and a fragment: a path may contain # and ?."""
    url = urlsplit(uri)
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path:
        raise ValueError(_RIGHT)
    if url.query or url.fragment:
        raise ValueError("is a URI with an unescaped ? or #; give the path without file:")
    return unquote(url.path)


def is_fault_of_file(error: Exception) -> bool:
    """Returns whether an error of reading a file means that the file is lost or damaged."""
    return not isinstance(error, OSError) or error.errno in _OF_THE_FILE


def _is_hidden(name: str) -> bool:
    """Returns whether Parquet readers ignore a file or directory of this name."""
    return name.startswith(("_", "."))


def _raise_unless_missing(error: OSError) -> None:
    """The writer may remove a directory while another process lists it. A file contains none."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchanged(first: Path, second: Path) -> bool:
    """Returns False if the C library or the file system does not support the exchange."""
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
