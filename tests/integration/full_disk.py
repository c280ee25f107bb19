"""Disks that are really full: the kernel rejects the write."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import tempfile
from pathlib import Path
from typing import Protocol

from tidelog_runtime.local.cluster import LocalCluster

# A broker keeps a quarter of it in reserve.
DISK_BYTES = 16 << 20
_BALLAST = "ballast"
_BLOCK_BYTES = 64 << 10


class FullDisk(Protocol):
    """The disk of one broker. `message`: the error message of the kernel."""

    message: str

    def prepare(self, data_dir: Path) -> None:
        """Called before the broker starts."""

    def fill(self, cluster: LocalCluster, broker_id: int) -> None:
        """From now on nothing more fits."""

    def free(self, cluster: LocalCluster, broker_id: int) -> None: ...

    def release(self) -> None:
        """Called after the broker has stopped."""


class SmallFileSystem:
    """A tmpfs of a few megabytes, filled to its last byte: ENOSPC. Needs permission to mount."""

    message = os.strerror(errno.ENOSPC)

    def __init__(self) -> None:
        self._mounted: Path | None = None

    def prepare(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True)
        mount_tmpfs(data_dir)
        self._mounted = data_dir

    def fill(self, cluster: LocalCluster, broker_id: int) -> None:  # noqa: ARG002
        assert self._mounted is not None
        with (self._mounted / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while ballast.write(bytes(_BLOCK_BYTES)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self, cluster: LocalCluster, broker_id: int) -> None:  # noqa: ARG002
        assert self._mounted is not None
        (self._mounted / _BALLAST).unlink()

    def release(self) -> None:
        if self._mounted is not None:
            subprocess.run(["umount", "--lazy", str(self._mounted)], check=True)


class FileSizeLimit:
    """No file of the broker may exceed the current size of its logs (RLIMIT_FSIZE; Python ignores
    SIGXFSZ): EFBIG. Needs no permissions."""

    message = os.strerror(errno.EFBIG)

    def prepare(self, data_dir: Path) -> None:
        """Does nothing."""

    def fill(self, cluster: LocalCluster, broker_id: int) -> None:
        logs = cluster.broker_data_dir(broker_id).glob("replicas/*/*.log")
        self._limit(cluster, broker_id, max(log.stat().st_size for log in logs))

    def free(self, cluster: LocalCluster, broker_id: int) -> None:
        self._limit(cluster, broker_id, resource.RLIM_INFINITY)

    def release(self) -> None:
        """Does nothing."""

    def _limit(self, cluster: LocalCluster, broker_id: int, limit: int) -> None:
        pid = cluster.broker_process(broker_id).pid
        assert pid is not None
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))


def mount_tmpfs(directory: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tidelog-test", str(directory)]
    subprocess.run(command, check=True, capture_output=True)


def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        try:
            mount_tmpfs(Path(directory))
        except (OSError, subprocess.CalledProcessError):
            return False
        subprocess.run(["umount", directory], check=True)
        return True


def full_disks() -> list[type[SmallFileSystem] | type[FileSizeLimit]]:
    """The kinds that this machine supports."""
    return [FileSizeLimit, SmallFileSystem] if may_mount() else [FileSizeLimit]
