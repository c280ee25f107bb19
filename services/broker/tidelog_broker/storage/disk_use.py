"""How full the file system of the data is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidelog.inspection.model import NOT_KNOWN


class DiskUse(NamedTuple):
    free_bytes: int
    size_bytes: int


UNKNOWN_DISK = DiskUse(NOT_KNOWN, NOT_KNOWN)

# May block; raises OSError.
LookAtDisk = Callable[[], DiskUse]


def disk_use(directory: Path) -> DiskUse:
    """Of the file system that the directory is on."""
    use = shutil.disk_usage(directory)
    return DiskUse(use.free, use.total)
