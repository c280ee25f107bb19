"""Leader epochs on disk, one line each. A new epoch costs one small append and no rename, which
would make some file systems write delayed data at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from crc32c import crc32c

from tidelog.log_format import walk_frames
from tidelog_broker.log.bad_sectors import BadSectorReader, is_unreadable
from tidelog_broker.log.clean_shutdown import KnownSegment
from tidelog_broker.log.disk import Disk, DiskFile
from tidelog_broker.log.leader_epochs import EpochEntry, LeaderEpochs
from tidelog_broker.log.segment import segment_path

EPOCHS_NAME = "leader-epochs"
_FIRST_LINE = b"tidelog leader-epochs 1\n"


def _line(entry: EpochEntry) -> bytes:
    text = f"{entry.leader_epoch} {entry.start_offset}"
    return f"{text} {crc32c(text.encode()):08x}\n".encode()


def _parse_line(line: bytes) -> EpochEntry | None:
    epoch, _, start = line.rpartition(b" ")[0].partition(b" ")
    if not (epoch.isdigit() and start.isdigit()):
        return None
    entry = EpochEntry(int(epoch), int(start))
    return entry if _line(entry) == line else None


class EpochFile:
    """The leader epochs of one log.

    `write` does not sync: a flush syncs the file with the batches, and recovery reads from the
    batches what lies beyond the recovery point."""

    def __init__(self, disk: Disk, directory: PurePath) -> None:
        self._disk = disk
        self._path = directory / EPOCHS_NAME
        self._entries: tuple[EpochEntry, ...] | None = None  # None: unknown
        self._size = 0

    def read(self) -> tuple[EpochEntry, ...] | None:
        """Returns None if the file is missing, torn or damaged. The batches have the same
        epochs."""
        try:
            data = self._disk.read_file(self._path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or is_unreadable(error):
                return None
            raise
        lines = data.splitlines(keepends=True)
        entries = [_parse_line(line) for line in lines[1:]]
        known = tuple(entry for entry in entries if entry is not None)
        if lines[:1] != [_FIRST_LINE] or len(known) < len(entries):
            return None
        self._entries, self._size = known, len(data)
        return known

    def write(self, entries: tuple[EpochEntry, ...]) -> bool:
        """Stores the entries. Returns True if a new file of the same name replaced the old one."""
        before = self._entries
        if before == entries or not (before or entries):
            return False
        if before is None or entries[: len(before)] != before:
            self.replace(entries, sync=False)
            return True
        added = _lines(entries[len(before) :])
        self._entries = None
        file = self.open()
        try:
            file.write_at(self._size, [added])
        finally:
            file.close()
        self._entries, self._size = entries, self._size + len(added)
        return False

    def replace(self, entries: tuple[EpochEntry, ...], *, sync: bool) -> None:
        data = _FIRST_LINE + _lines(entries)
        self._entries = None
        self._disk.write_atomically(self._path, data, sync=sync)
        self._entries, self._size = entries, len(data)

    def open(self) -> DiskFile:
        return self._disk.open(self._path)


def _lines(entries: Iterable[EpochEntry]) -> bytes:
    return b"".join(map(_line, entries))


def read_epochs(file: EpochFile) -> LeaderEpochs | None:
    """Returns None if the file cannot be used."""
    entries = file.read()
    return None if entries is None else LeaderEpochs(entries)


def epochs_of(disk: Disk, directory: PurePath, segments: Iterable[KnownSegment]) -> LeaderEpochs:
    """Returns the epochs in the headers of all batches up to the first invalid one."""
    epochs = LeaderEpochs()
    for base, summary in segments:
        file = disk.open(segment_path(directory, base))
        try:
            read = BadSectorReader(file).read_at
            for info in walk_frames(read, summary.size, expected_offset=base, verify=False):
                if info.fault is not None or info.header is None:
                    return epochs
                if info.header.leader_epoch < epochs.latest:
                    return epochs
                epochs.assign(info.header.leader_epoch, info.header.base_offset)
        finally:
            file.close()
    return epochs
