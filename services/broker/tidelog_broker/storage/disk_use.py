"""The free space of the file system that holds the data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidelog.inspection.state_reports import NOT_KNOWN


class DiskUse(NamedTuple):
    """`inodes` is 0 if the file system has no fixed number of them, or does not report it."""

    free_bytes: int
    size_bytes: int
    free_inodes: int = 0
    inodes: int = 0


UNKNOWN_DISK = DiskUse(NOT_KNOWN, NOT_KNOWN)

# May block; raises OSError.
ReadDiskUse = Callable[[], DiskUse]


def disk_use(directory: Path) -> DiskUse:
    """Returns the use of the file system that holds the directory."""
    use, files = shutil.disk_usage(directory), os.statvfs(directory)
    return DiskUse(use.free, use.total, files.f_favail, files.f_files)
