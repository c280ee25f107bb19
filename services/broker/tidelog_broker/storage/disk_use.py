"""How full the file system of the data is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidelog.inspection.model import NOT_KNOWN


class DiskUse(NamedTuple):
    """`inodes`: 0 where the file system has no fixed number of them, or does not say."""

    free_bytes: int
    size_bytes: int
    free_inodes: int = 0
    inodes: int = 0


UNKNOWN_DISK = DiskUse(NOT_KNOWN, NOT_KNOWN)

# May block; raises OSError.
LookAtDisk = Callable[[], DiskUse]


def disk_use(directory: Path) -> DiskUse:
    """Of the file system that the directory is on."""
    use, files = shutil.disk_usage(directory), os.statvfs(directory)
    return DiskUse(use.free, use.total, files.f_favail, files.f_files)
