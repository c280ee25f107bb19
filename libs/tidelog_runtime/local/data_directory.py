"""The directory of a local cluster: one process at a time uses it, and its disk has room."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from tidelog_runtime.local import ClusterError

_LOCK_FILE = "lock"


class DirectoryInUseError(ClusterError):
    """Another process runs a cluster there; `str(error)` names it."""


class DirectoryNotWritableError(ClusterError):
    """The cluster's directory, which needs to hold data, logs and addresses, is not writable."""


_PERMISSIONS = "correct the permissions of {place}"
_IN_THE_WAY = "move {place} away"
_REMEDIES = {
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EISDIR: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EROFS: "mount the file system of {place} for writing",
}
# Other errors may be of a port, a program or a limit of the process.
_FILE_ERRORS = frozenset({*_REMEDIES, errno.ENOSPC, errno.EDQUOT, errno.EIO})


def file_error(directory: Path, error: OSError) -> ClusterError:
    """Returns one line about a file of the cluster that cannot be written or read."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(directory)
    # A replacement names the temporary file first.
    file = error.filename2 or error.filename
    path = Path(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else directory
    place = path if os.path.exists(path) else path.parent  # noqa: PTH110 - raises no OSError
    remedy = _REMEDIES.get(error.errno or 0, "check the file system of {place}")
    return DirectoryNotWritableError(
        f"the directory {directory} cannot be written to ({error.strerror or error}: {path}); "
        f"choose another one by --directory, or {remedy.format(place=place)}"
    )


def os_error(directory: Path, error: OSError) -> ClusterError:
    """Returns one line about an error that need not be of a file of the cluster."""
    if error.errno in _FILE_ERRORS:
        return file_error(directory, error)
    file = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    return ClusterError(f"{error.strerror or error}{file}")


def check_writable(directory: Path, written: Iterable[Path], replaced: Iterable[Path]) -> None:
    """Raises `ClusterError` if one of the files cannot be written.

    - `written`: files that are written in place. Those that are missing are created empty.
    - `replaced`: files that are replaced by renaming others in the same directory."""
    try:
        for path in written:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        for path in replaced:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            probe = path.with_name(f".{path.name}.probe")
            probe.touch()
            probe.unlink()
    except OSError as error:
        raise file_error(directory, error) from error


class DirectoryLock:
    """Held until `release` or until the process ends, for any reason."""

    def __init__(self, directory: Path) -> None:
        path = directory / _LOCK_FILE
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise file_error(directory, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise DirectoryInUseError(
                f"a cluster is already running in {directory}, as process {owner or '?'}; stop "
                "it, or choose another directory"
            ) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(self._descriptor)
            raise file_error(directory, error) from error

    @staticmethod
    def holder(directory: Path) -> int | None:
        """Returns the process that runs a cluster there; None: there is none."""
        try:
            descriptor = os.open(directory / _LOCK_FILE, os.O_RDWR)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip()
            return int(owner) if owner.isdecimal() else None
        else:
            return None
        finally:
            os.close(descriptor)

    def release(self) -> None:
        # The file stays: removing it would let two processes lock two files of the same name.
        os.close(self._descriptor)


# At its first start, the embedded etcd allocates two log files of 64 MB; at later starts, it
# allocates one again.
FIRST_START_BYTES = 160_000_000
LATER_START_BYTES = 80_000_000
# Below this, a service that cannot write is assumed to have a full disk.
FULL_BYTES = 1_000_000


class DiskFullError(ClusterError):
    """The disk of the cluster's directory has too little space."""


def free_bytes(directory: Path) -> int:
    """Returns the free bytes of the disk of the directory, which need not exist yet.

    0: the disk has no room for more files.
    """
    if lacks_inodes(directory):
        return 0
    disk = _disk_of(directory)
    return disk.f_bavail * disk.f_frsize


def lacks_inodes(directory: Path) -> bool:
    disk = _disk_of(directory)
    # A file system that allocates inodes dynamically reports none in total.
    return bool(disk.f_files) and not disk.f_favail


def _disk_of(directory: Path) -> os.statvfs_result:
    there = directory
    while not there.exists():
        there = there.parent
    return os.statvfs(there)


def is_full(directory: Path) -> bool:
    return free_bytes(directory) < FULL_BYTES


def check_space(directory: Path, needed_bytes: int = FULL_BYTES) -> None:
    """Raises `DiskFullError` if less is free."""
    if free_bytes(directory) < needed_bytes:
        raise disk_full(directory, needed_bytes)


def disk_full(directory: Path, needed_bytes: int = FULL_BYTES) -> DiskFullError:
    if lacks_inodes(directory):
        return DiskFullError(
            f"the disk of {directory} has no inodes left, so that no file can be created; remove "
            "small files, or choose a directory on another disk"
        )
    free = free_bytes(directory)
    return DiskFullError(
        f"the disk of {directory} has {free / 1_000_000:.1f} MB free, and at least "
        f"{needed_bytes / 1_000_000:.0f} MB are needed to start; free some of it, or choose a "
        "directory on another disk"
    )
