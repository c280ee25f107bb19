"""Checks the free disk space for a local cluster."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog_runtime.local.errors import ClusterError

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
    there = directory
    while not there.exists():
        there = there.parent
    disk = os.statvfs(there)
    # A file system that allocates inodes dynamically reports none in total.
    if disk.f_files and not disk.f_favail:
        return 0
    return disk.f_bavail * disk.f_frsize


def is_full(directory: Path) -> bool:
    return free_bytes(directory) < FULL_BYTES


def check_space(directory: Path, needed_bytes: int = FULL_BYTES) -> None:
    """Raises `DiskFullError` if less is free."""
    if free_bytes(directory) < needed_bytes:
        raise disk_full(directory, needed_bytes)


def disk_full(directory: Path, needed_bytes: int = FULL_BYTES) -> DiskFullError:
    free = free_bytes(directory)
    return DiskFullError(
        f"the disk of {directory} has {free / 1_000_000:.1f} MB free, and at least "
        f"{needed_bytes / 1_000_000:.0f} MB are needed to start; free some of it, or choose a "
        "directory on another disk"
    )
