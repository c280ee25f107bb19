"""Identifies a file, so that a copy of it can be detected.

A file may contain its own id: renaming keeps the id. Every copy by cp, rsync, tar or a backup gets
another id, whatever times and owners the copy preserves."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import NamedTuple

# From linux/stat.h and linux/fcntl.h.
_STATX_BTIME = 0x800
_AT_EMPTY_PATH = 0x1000
_STATX_BYTES = 256


class FileId(NamedTuple):
    """The identity of a file.

    - `device`: may change at a reboot.
    - `inode`: may be used again after a removal.
    - `birth_ns`: creation time in nanoseconds since 1970; 0: the file system does not record it.
    """

    device: int
    inode: int
    birth_ns: int

    @classmethod
    def from_json(cls, value: Sequence[int]) -> FileId:
        device, inode, birth_ns = value
        return cls(device, inode, birth_ns)

    def is_same_file(self, other: FileId, *, same_boot: bool) -> bool:
        """Returns whether both ids count as those of one file.

        `same_boot`: both were taken in one boot of the machine, so that devices can be compared.
        Without birth times no files are the same across boots. Within a boot a copy beside the
        original has another inode or device, and only a file that replaced the original can have
        its inode."""
        is_comparable = same_boot or self.birth_ns != 0
        return is_comparable and self.may_be_same_file(other, same_boot=same_boot)

    def may_be_same_file(self, other: FileId, *, same_boot: bool) -> bool:
        """Returns whether nothing shows that the ids are of two files."""
        if same_boot and self.device != other.device:
            return False
        return (self.inode, self.birth_ns) == (other.inode, other.birth_ns)


class _Timestamp(ctypes.Structure):
    _fields_ = (
        ("seconds", ctypes.c_int64),
        ("nanoseconds", ctypes.c_uint32),
        ("_reserved", ctypes.c_int32),
    )


class _Statx(ctypes.Structure):
    """`struct statx` up to the birth time."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("_before_times", ctypes.c_byte * 60),
        ("accessed", _Timestamp),
        ("born", _Timestamp),
        ("_rest", ctypes.c_byte * (_STATX_BYTES - 96)),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def file_id(descriptor: int) -> FileId:
    """Returns the id of an open file. Raises OSError."""
    stat = os.fstat(descriptor)
    return FileId(stat.st_dev, stat.st_ino, _birth_ns(descriptor))


def _birth_ns(descriptor: int) -> int:
    """Returns the birth time, which Python's `os.stat` does not report on Linux."""
    found = _Statx()
    statx = getattr(_libc, "statx", None)  # not in every libc
    if statx is None:
        return 0
    failed = statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, ctypes.byref(found))
    if failed or not found.mask & _STATX_BTIME:
        return 0
    return int(found.born.seconds) * 1_000_000_000 + int(found.born.nanoseconds)
