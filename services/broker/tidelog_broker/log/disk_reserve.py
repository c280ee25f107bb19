"""Reserves disk space for state files, so that a full disk can be freed.

Retention stores a log's new start before it deletes segments. Files of a deleted topic go only
after a checkpoint without it is on disk. A start writes `broker.json`. On a full disk none of these
could be written, and nothing would ever be freed. So `reserve/` holds a few files with allocated
blocks. On a full disk a state file takes the place of one of them, and they are created again as
soon as they fit. Until then appends are rejected: they never use this space.

There are several files, because each also reserves an inode."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import TypeVar

import structlog

from tidelog.inspection.state_reports import RESERVE_FILES
from tidelog_broker.log.disk import Disk, DiskFile, Tree
from tidelog_broker.log.file_id import FileId
from tidelog_runtime.clock import Clock

RESERVE = "reserve"
RESERVE_FILE_BYTES = 256 << 10
# Each attempt to create the files again may block the event loop.
REFILL_INTERVAL_MS = 500

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_log = structlog.get_logger()

T = TypeVar("T")


class DiskReserve:
    """The reserved space. May be used by several threads.

    `is_short`: a part of it is in use, or there was never space for it."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        clock: Clock,
        *,
        files: int = RESERVE_FILES,
        file_bytes: int = RESERVE_FILE_BYTES,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._clock = clock
        self._missing = {f"{number:02d}" for number in range(files)}
        self._present: set[str] = set()
        self._file_bytes = file_bytes
        self._refill_ms = 0
        self._in_use = 0
        self._lock = threading.Lock()
        self.is_short = False

    def open(self) -> None:
        """Takes over the files that the previous process left, and creates the rest as far as it
        fits.

        Raises nothing: a broker without a reserve works as long as its disk has space."""
        try:
            # Existing files first. A crash or a copy may have left them incomplete.
            found = self._missing.intersection(self._disk.list_names(self._directory))
            self._disk.make_directory(self._directory)
            self._create(found)
            self._refill()
        except OSError as error:
            self._handle_create_error(error)

    def use(self, write: Callable[[], T]) -> T:
        """Calls `write`, and again for each file that is given up while the disk is full."""
        try:
            return write()
        except OSError as error:
            if error.errno not in _FULL:
                raise
        with self._lock:
            self._in_use += 1
        try:
            return self._use(write)
        finally:
            with self._lock:
                self._in_use -= 1
            self.refill()

    def _use(self, write: Callable[[], T]) -> T:
        while True:
            is_last = not self._release_one()
            try:
                return write()
            except OSError as error:
                if is_last or error.errno not in _FULL:
                    raise

    def _release_one(self) -> bool:
        with self._lock:
            if not self._present:
                return False
            name = min(self._present)
            self._disk.remove(self._directory / name)
            self._present.discard(name)
            self._missing.add(name)
            self._refill_ms = self._clock.monotonic_ms() + REFILL_INTERVAL_MS
            if not self.is_short:
                self.is_short = True
                _log.warning(
                    "disk_reserve_used",
                    path=str(self._directory),
                    why="the disk is full; appends are rejected, while retention and deleted "
                    "topics still free space",
                    fix="free space on that disk, shorten retention_ms or retention_bytes, or "
                    "delete topics",
                )
            return True

    def refill(self) -> None:
        """Creates missing files again, at most once in REFILL_INTERVAL_MS."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if not self.is_short or self._in_use or now_ms < self._refill_ms:
                return
            self._refill_ms = now_ms + REFILL_INTERVAL_MS
            try:
                self._refill()
            except OSError as error:
                self._handle_create_error(error)

    def _refill(self) -> None:
        self._create(self._missing)
        if self.is_short:
            self.is_short = False
            _log.info("disk_reserve_restored", path=str(self._directory))

    def _create(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            self._disk.allocate(self._directory / name, self._file_bytes)
            self._missing.discard(name)
            self._present.add(name)

    def _handle_create_error(self, error: OSError) -> None:
        """Only a full disk makes appends wait for the reserve."""
        was_short, self.is_short = self.is_short, error.errno in _FULL
        if not was_short or not self.is_short:
            _log.warning("disk_reserve_not_made", path=str(self._directory), why=str(error))


class ReservedDisk:
    """A `Disk` whose state files may use the reserve, and whose appends may not."""

    def __init__(self, disk: Disk, reserve: DiskReserve) -> None:
        self._disk = disk
        self._reserve = reserve

    def open(self, path: PurePath, *, create: bool = False) -> DiskFile:
        if not create:
            return self._disk.open(path)
        # A new file takes an inode. A log that retention rolls needs one, too.
        return self._reserve.use(lambda: self._disk.open(path, create=True))

    def file_size(self, path: PurePath) -> int:
        return self._disk.file_size(path)

    def read_file(self, path: PurePath) -> bytes:
        return self._disk.read_file(path)

    def write_atomically(self, path: PurePath, data: bytes, *, sync: bool) -> None:
        self._reserve.use(lambda: self._disk.write_atomically(path, data, sync=sync))

    def write_with_id(
        self, path: PurePath, render: Callable[[FileId], bytes], *, sync: bool
    ) -> None:
        self._reserve.use(lambda: self._disk.write_with_id(path, render, sync=sync))

    def file_id(self, path: PurePath) -> FileId:
        return self._disk.file_id(path)

    def list_names(self, directory: PurePath) -> list[str]:
        return self._disk.list_names(directory)

    def tree(self, directory: PurePath) -> Tree:
        return self._disk.tree(directory)

    def make_directory(self, directory: PurePath) -> None:
        self._disk.make_directory(directory)

    def sync_directory(self, directory: PurePath) -> None:
        self._disk.sync_directory(directory)

    def remove(self, path: PurePath) -> None:
        self._disk.remove(path)

    def rename(self, source: PurePath, target: PurePath) -> None:
        # The directory may grow by a block.
        self._reserve.use(lambda: self._disk.rename(source, target))

    def remove_tree(self, directory: PurePath) -> None:
        self._disk.remove_tree(directory)

    def allocate(self, path: PurePath, size: int) -> None:
        self._disk.allocate(path, size)

    def check_append_room(self) -> None:
        if self._reserve.is_short:
            self._reserve.refill()
            if self._reserve.is_short:
                raise OSError(errno.ENOSPC, "the remaining space is reserved for state files")


def with_reserve(disk: Disk, data_dir: PurePath, clock: Clock) -> ReservedDisk:
    """Creates the data directory, and the reserve as far as there is space for it."""
    reserve = DiskReserve(disk, data_dir / RESERVE, clock)
    reserve.open()
    return ReservedDisk(disk, reserve)
