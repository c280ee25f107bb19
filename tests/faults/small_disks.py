"""Disks that can be filled: a file system in a file, mounted through a loop device.

A tmpfs volume would not do: Docker unmounts it with its container, and a restarted broker would
have lost its data. Neither would a quota, which few storage drivers support."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from faults.cluster import ClusterFailedError
from faults.commands import run_command

# Room for the records of some runs; the file is sparse, so that it takes only what is written.
DISK_BYTES = 4 << 30
_BALLAST = "ballast"
_BLOCK_BYTES = 1 << 20
# The user of the broker in its container.
OWNER = 10_001


async def why_no_small_disks(directory: Path) -> str:
    """Tries one in `directory`, a new path, and removes it. Empty: small disks are possible."""
    probe = SmallDisk(directory)
    try:
        await probe.make()
    except ClusterFailedError as error:
        return str(error)
    finally:
        await probe.remove()
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
    return ""


def make_data_dir(path: Path) -> None:
    """Makes a directory that a broker in its container may write to; it runs as OWNER or else as
    this user."""
    path.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(path, OWNER, OWNER)


class SmallDisk:
    """Mounted at `path` / mount; the broker's data are below it."""

    def __init__(self, path: Path) -> None:
        self._image = path / "image"
        self._mount = path / "mount"
        self.data_dir = self._mount / "data"

    async def make(self) -> None:
        """Raises `ClusterFailedError` if this process may not mount, or cannot."""
        self._mount.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(DISK_BYTES)
        # No blocks are reserved for root: full means full.
        await run_command(["mkfs.ext4", "-q", "-m", "0", str(self._image)])
        await run_command(["mount", "-o", "loop", str(self._image), str(self._mount)])
        make_data_dir(self.data_dir)

    async def remove(self) -> None:
        with suppress(ClusterFailedError):
            await run_command(["umount", "--lazy", str(self._mount)])
        self._image.unlink(missing_ok=True)

    def fill(self) -> None:
        """Fills the disk to its last block."""
        with (self._mount / _BALLAST).open("wb", buffering=0) as ballast:
            with suppress(OSError):
                left = os.statvfs(self._mount)
                os.posix_fallocate(ballast.fileno(), 0, left.f_bavail * left.f_frsize)
            ballast.seek(0, os.SEEK_END)
            for size in (_BLOCK_BYTES, 1):
                try:
                    while ballast.write(bytes(size)):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        (self._mount / _BALLAST).unlink(missing_ok=True)
