"""Disks of single brokers of a local cluster that are slow, hang, lack inodes, become read-only or
fail.

If this process may mount, a real file system runs out of inodes and rejects writes. Otherwise, and
for slow answers and I/O errors, which no file system can simulate, a library that is preloaded into
the broker (`failing_disk.c`) delays or fails its system calls."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from integration.full_disk import may_mount

DISK_BYTES = 64 << 20
INODES = 2_000
_SOURCE = Path(__file__).with_name("failing_disk.c")
_JUNK = "small-files"
_BALLAST = "ballast"


class FailingDisk(Protocol):
    """Below the data directory of one broker."""

    def prepare(self) -> None:
        """Called before the broker starts."""

    def fill(self) -> None:
        """From now on no record fits."""

    def free(self) -> None: ...

    def take_inodes(self) -> None:
        """From now on no file can be created."""

    def give_inodes(self) -> None: ...

    def become_read_only(self) -> None: ...

    def mount_writable(self) -> None:
        """Called while the broker does not run."""

    def release(self) -> None:
        """Called after the broker has stopped."""


class Preloaded:
    """The library, and its effect on the disks of all brokers of one cluster. `variables`: of the
    brokers' environment."""

    def __init__(self, brokers: Path, library: Path) -> None:
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._brokers = brokers
        self.variables = {"LD_PRELOAD": str(library), "FAILING_DISKS": str(brokers)}

    def slow(self, broker_id: int, sync_ms: int = 0, write_ms: int = 0) -> None:
        self.set(broker_id, sync_ms, write_ms=write_ms)

    def sound(self, broker_id: int) -> None:
        self._control(broker_id).unlink(missing_ok=True)

    def set(
        self,
        broker_id: int,
        sync_ms: int = 0,
        create: int = 0,
        write: int = 0,
        write_ms: int = 0,
        sync: int = 0,
    ) -> None:
        """`sync_ms`, `write_ms`: how long each call takes, or until `sound`; writes count if they
        go to open logs. `create`, `write`, `sync`: error numbers; 0: the call succeeds."""
        control = self._control(broker_id)
        new = control.with_suffix(".new")
        new.write_text(f"{sync_ms} {create} {write} {write_ms} {sync}")
        new.replace(control)

    def _control(self, broker_id: int) -> Path:
        return self._brokers / f"{broker_id}.disk"


class RefusingCalls:
    """Needs no permissions."""

    def __init__(self, preloaded: Preloaded, broker_id: int) -> None:
        self._preloaded = preloaded
        self._broker_id = broker_id

    def prepare(self) -> None:
        """Does nothing."""

    def fill(self) -> None:
        self._preloaded.set(self._broker_id, write=errno.ENOSPC)

    def free(self) -> None:
        self._preloaded.sound(self._broker_id)

    def take_inodes(self) -> None:
        self._preloaded.set(self._broker_id, create=errno.ENOSPC)

    def give_inodes(self) -> None:
        self._preloaded.sound(self._broker_id)

    def become_read_only(self) -> None:
        self._preloaded.set(self._broker_id, create=errno.EROFS, write=errno.EROFS)

    def mount_writable(self) -> None:
        self._preloaded.sound(self._broker_id)

    def release(self) -> None:
        """Does nothing."""


class SmallFileSystem:
    """An ext4 with few inodes in a file. Needs permission to mount."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._image = data_dir.with_suffix(".image")

    def prepare(self) -> None:
        self._data_dir.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(DISK_BYTES)
        make = ["mkfs.ext4", "-q", "-m", "0", "-N", str(INODES), str(self._image)]
        subprocess.run(make, check=True)
        self._mount()

    def _mount(self) -> None:
        mount = ["mount", "-o", "loop", str(self._image), str(self._data_dir)]
        subprocess.run(mount, check=True)

    def fill(self) -> None:
        with (self._data_dir / _BALLAST).open("wb", buffering=0) as ballast:
            for size in (1 << 16, 1):
                with suppress(OSError):
                    while ballast.write(bytes(size)):
                        pass

    def free(self) -> None:
        (self._data_dir / _BALLAST).unlink()

    def take_inodes(self) -> None:
        junk = self._data_dir / _JUNK
        junk.mkdir()
        with suppress(OSError):
            for number in range(INODES):
                (junk / str(number)).touch()
        assert os.statvfs(self._data_dir).f_favail == 0

    def give_inodes(self) -> None:
        for file in (self._data_dir / _JUNK).iterdir():
            file.unlink()

    def become_read_only(self) -> None:
        """As ext4 does by itself after a disk error."""
        subprocess.run(["mount", "-o", "remount,abort", str(self._data_dir)], check=True)

    def mount_writable(self) -> None:
        subprocess.run(["umount", str(self._data_dir)], check=True)
        repair = subprocess.run(["fsck.ext4", "-p", str(self._image)], check=False)
        assert repair.returncode in (0, 1), "it is repaired"
        self._mount()

    def release(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._data_dir)], check=False)


def failing_disk(preloaded: Preloaded, data_dir: Path, broker_id: int) -> FailingDisk:
    """The most realistic disk that this machine supports."""
    if may_mount():
        return SmallFileSystem(data_dir)
    return RefusingCalls(preloaded, broker_id)
