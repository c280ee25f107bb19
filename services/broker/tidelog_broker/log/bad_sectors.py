"""Reads around bad sectors of a disk ("Damaged batches" in docs/internals/log-format.md).

Only the batches in a bad sector count as damaged. Writes may not make such a sector readable. So a
segment is copied to a new file before its damaged batches are made unreadable. In the copy FILLER
replaces what cannot be read; no checksum matches it."""

from __future__ import annotations

import errno as errnos
from contextlib import suppress
from pathlib import PurePath
from typing import Protocol

from tidelog_broker.log.disk import TEMPORARY_SUFFIX, Disk

UNREADABLE_ERRNOS = frozenset({errnos.EIO, errnos.EBADMSG})
SECTOR_BYTES = 512
FILLER = (b"this sector could not be read. " * 17)[:SECTOR_BYTES]
# A sector that a retry can read costs no batch.
READ_ATTEMPTS = 3
# If so much is unreadable and nothing was read before, the disk has failed and not a sector.
MAX_UNREADABLE_BYTES = 64 << 10
_COPY_BYTES = 1 << 20


def is_unreadable(error: OSError) -> bool:
    """Returns whether the disk reports that it cannot read a part of a file."""
    return error.errno in UNREADABLE_ERRNOS


class Readable(Protocol):
    def read_at(self, size: int, position: int) -> bytes:
        """Returns fewer bytes only at the end of the file. Raises OSError."""


class BadSectorReader:
    """Reads a file with FILLER in place of each unreadable sector.

    `bad_sectors` has their positions."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._has_read = False
        self.bad_sectors: set[int] = set()

    def read_at(self, size: int, position: int) -> bytes:
        """Raises OSError if the disk can read nothing of the file."""
        data = self._read_or_none(size, position)
        if data is not None:
            return data
        end = position + size
        parts = []
        while position < end:
            stop = min(end, position - position % SECTOR_BYTES + SECTOR_BYTES)
            part = self._sector(stop - position, position)
            parts.append(part)
            if len(part) < stop - position:
                break
            position = stop
        return b"".join(parts)

    def reread(self, sector: int, size: int) -> bytes | None:
        """Reads a bad sector again. Returns None if it is still unreadable."""
        data = self._read_or_none(size, sector)
        if data is not None:
            self.bad_sectors.discard(sector)
        return data

    def _sector(self, size: int, position: int) -> bytes:
        start = position % SECTOR_BYTES
        sector = position - start
        if sector not in self.bad_sectors:
            for _ in range(READ_ATTEMPTS):
                data = self._read_or_none(size, position)
                if data is not None:
                    return data
            self.bad_sectors.add(sector)
            if not self._has_read and len(self.bad_sectors) * SECTOR_BYTES > MAX_UNREADABLE_BYTES:
                return self._file.read_at(size, position)
        return FILLER[start : start + size]

    def _read_or_none(self, size: int, position: int) -> bytes | None:
        try:
            data = self._file.read_at(size, position)
        except OSError as error:
            if not is_unreadable(error):
                raise
            return None
        self._has_read = True
        return data


def copy_readable(disk: Disk, path: PurePath, target: PurePath, size: int) -> bool:
    """Copies the first `size` bytes of a file to a new one, and syncs that.

    FILLER replaces unreadable sectors and bytes beyond the end of the file. Returns whether all
    could be read. Leaves no part of the new file on an error. Blocks; raises OSError."""
    try:
        return _copy_readable(disk, path, target, size)
    except OSError:
        # On a full disk the partial file would take room that others need.
        with suppress(OSError):
            disk.remove(target)
        raise


def _copy_readable(disk: Disk, path: PurePath, target: PurePath, size: int) -> bool:
    disk.remove(target)
    source = disk.open(path)
    reader = BadSectorReader(source)
    copied = 0
    try:
        copy = disk.open(target, create=True)
        try:
            for position in range(0, size, _COPY_BYTES):
                wanted = min(_COPY_BYTES, size - position)
                data = reader.read_at(wanted, position)
                lacking = wanted - len(data)
                copied += len(data)
                filler = FILLER * -(-lacking // SECTOR_BYTES)
                copy.write_at(position, [data, filler[:lacking]])
            for sector in sorted(reader.bad_sectors):
                read = reader.reread(sector, min(SECTOR_BYTES, size - sector))
                if read is not None:
                    copy.write_at(sector, [read])
            copy.sync()
        finally:
            copy.close()
    finally:
        source.close()
    return copied == size and not reader.bad_sectors


def replace_file(disk: Disk, path: PurePath) -> bool:
    """Replaces a file by a copy on other sectors. The caller has to sync the directory.

    Returns whether all could be read. Blocks; raises OSError."""
    temporary = PurePath(f"{path}{TEMPORARY_SUFFIX}")
    is_sound = copy_readable(disk, path, temporary, disk.file_size(path))
    disk.rename(temporary, path)
    return is_sound
