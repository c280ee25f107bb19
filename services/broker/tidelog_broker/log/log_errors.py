"""Errors of a log. The broker maps them to wire errors."""

from __future__ import annotations

import errno as errnos
import os
from pathlib import PurePath
from typing import Self

from tidelog.log_format import SEGMENT_SUFFIX
from tidelog_broker.log.bad_sectors import is_unreadable

_REMEDIES = {
    errnos.ENOSPC: "free space on that disk; appends continue as soon as there is space",
    errnos.EFBIG: "raise the limit of file sizes (ulimit -f); appends continue then",
    errnos.EDQUOT: "raise the disk quota; appends continue as soon as there is space",
    errnos.EIO: "check the disk, and move the replica if it is failing",
    errnos.EROFS: "mount the file system writable",
    errnos.EACCES: "give the broker's user write access",
    errnos.EMFILE: "raise the limit of open files (ulimit -n)",
    errnos.ENOENT: "the data directory was moved or removed; put it back",
    errnos.ENOTDIR: "give a directory in its place",
    errnos.EEXIST: "give a directory in its place",
    errnos.EISDIR: "a directory is in the place of this file; move it elsewhere",
}


def describe_os_error(error: OSError) -> str:
    """Returns a message with the file and a remedy, for a process that exits because of the
    error."""
    if error.errno is None or error.filename is None:
        return str(error)
    remedy = _REMEDIES.get(error.errno, "check the disk").partition("; appends")[0]
    if error.errno in _FULL:
        remedy += ", then start again"
    return f"cannot use {error.filename}: {os.strerror(error.errno)}; {remedy}"


# The log is unchanged. The operation may succeed once there is room or a free file descriptor.
_TRANSIENT = frozenset(
    {errnos.ENOSPC, errnos.EFBIG, errnos.EDQUOT, errnos.EMFILE, errnos.ENFILE, errnos.ENOMEM}
)


_FULL = frozenset({errnos.ENOSPC, errnos.EFBIG, errnos.EDQUOT})


class LogError(Exception):
    """A fault of the disk or of its content that affects one partition.

    - `is_transient`: the log is unchanged, and a later attempt may succeed.
    - `is_full`: disk space, quota or the limit of file sizes is exhausted.
    """

    is_transient = False
    is_full = False


class LogStorageError(LogError):
    """The operating system returned an error. Nothing was appended."""

    def __init__(self, path: PurePath, errno: int, action: str) -> None:
        remedy = _REMEDIES.get(errno, "check the disk")
        super().__init__(f"cannot {action} {path}: {os.strerror(errno)}; {remedy}")
        self.path = path
        self.errno = errno
        self.is_transient = errno in _TRANSIENT
        self.is_full = errno in _FULL

    @classmethod
    def of(cls, error: OSError, path: PurePath, action: str) -> Self:
        return cls(path, error.errno or errnos.EIO, action)


class SyncHangsError(LogError):
    """A sync has been running for so long that the disk counts as failing. It may still succeed."""


class LogUnreadableError(LogStorageError):
    """The disk cannot read a part of the file. Only what that part holds is damaged."""

    @property
    def reason(self) -> str:
        return str(self)


def read_failure(error: OSError, path: PurePath, action: str) -> LogStorageError:
    """Returns the error of a log for a failed read.

    `path` is the file or directory to name where `error` names none. A missing segment counts as
    unreadable."""
    is_missing = error.errno == errnos.ENOENT and str(error.filename).endswith(SEGMENT_SUFFIX)
    named = PurePath(error.filename) if error.filename else path
    if is_missing or is_unreadable(error):
        return LogUnreadableError.of(error, named, action)
    return LogStorageError.of(error, named, action)


class LogFailedError(LogStorageError):
    """An earlier fault left it unknown what is on disk. Only reopening the log finds out."""

    def __init__(self, path: PurePath, errno: int, action: str) -> None:
        super().__init__(path, errno, action)
        self.is_transient = False


class LogInterruptedError(LogFailedError):
    """An error other than an I/O error interrupted a change of the log."""

    def __init__(self, path: PurePath, error: Exception, action: str) -> None:
        super().__init__(path, errnos.ENOMEM, action)
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        self.args = (f"cannot {action} {path}: {why}; the log is opened again",)


class LogCorruptError(LogError):
    """The content on disk differs from what was written."""

    def __init__(self, path: PurePath, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class UndecidedDamageError(LogCorruptError):
    """Damage whose repair depends on whether other replicas have the records: the log ends at the
    damage, or the damage becomes unreadable. Nothing was changed."""


class OutOfServiceError(LogError):
    """The replica is damaged, and has not resigned or has not been repaired yet."""

    def __init__(self, path: PurePath, reason: str) -> None:
        super().__init__(
            f"{path} is out of service until it has left the ISR and is repaired: {reason}"
        )


class OffsetOutOfRangeError(Exception):
    def __init__(self, offset: int, log_start: int, log_end: int) -> None:
        super().__init__(f"offset {offset} is outside the log, which has {log_start} to {log_end}")


class AppendOrderError(ValueError):
    """The batches do not continue the log. This is a fault of the caller."""
