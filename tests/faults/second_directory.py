"""The data directory of a second process: empty, or a copy of one that may be in use."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def copy_directory(source: Path, target: Path) -> None:
    """`target`: a new path. Files that a running broker removes meanwhile are left out."""
    shutil.copytree(source, target, copy_function=_copy)
    if os.geteuid() == 0:
        give_to(target, source)


def _copy(source: str, target: str) -> str:
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)
    return target


def give_to(directory: Path, owner: Path) -> None:
    """Gives the directory and its content the owner of `owner`. Needs root."""
    status = owner.stat()
    for path in (directory, *directory.rglob("*")):
        os.chown(path, status.st_uid, status.st_gid)
