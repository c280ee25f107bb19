"""Finds the segments of a log that is opened, and its first offset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from tidelog.log_format import SEGMENT_SUFFIX
from tidelog_broker.log.bad_sectors import is_unreadable
from tidelog_broker.log.checked_file import DamagedFileError, read_checked
from tidelog_broker.log.disk import TEMPORARY_SUFFIX, Disk
from tidelog_broker.log.indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog_broker.log.log_errors import UndecidedDamageError
from tidelog_broker.log.segment import segment_path
from tidelog_broker.log.unsynced_writes import UnsyncedWrites

LOG_START_NAME = "log-start-offset"
LOG_START_KIND = "log-start-offset"
# Earlier releases marked a cleanly stopped log by this file. It is removed, so that after a
# downgrade they do not trust a log that has changed.
LEGACY_MARKER_NAME = "clean-shutdown"

BeforeLoss = Callable[[], None]
"""Called before valid data is cut: after a crash right behind the cut the log would appear
intact."""


class LogStart(NamedTuple):
    log_start_offset: int
    bases: list[int]
    gap: str | None


def find_segments(
    disk: Disk, directory: PurePath, before_loss: BeforeLoss, unsynced: UnsyncedWrites
) -> LogStart:
    """Returns the segments that belong to the log. Removes all others, and temporary files.

    The first one begins at the log's start. Older ones are left from an interrupted deletion. If
    none begins there, a reset was interrupted or segments are missing. Then none is kept, because a
    replica that holds an offset is assumed to hold all below it. In an only copy an empty segment
    replaces the missing ones, whose offsets become unreadable."""
    names = disk.list_names(directory)
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX) or name == LEGACY_MARKER_NAME:
            disk.remove(directory / name)
    bases = sorted(int(n.removesuffix(SEGMENT_SUFFIX)) for n in names if n.endswith(SEGMENT_SUFFIX))
    start = _read_log_start(disk, directory) if LOG_START_NAME in names else 0
    if start is None:
        return LogStart(bases[0] if bases else 0, bases, None)
    kept = [base for base in bases if base >= start]
    gap = None
    if kept[:1] != [start]:
        if kept:
            gap = f"the log begins at offset {start}, its first segment at {kept[0]}"
            if unsynced in (UnsyncedWrites.LOST, UnsyncedWrites.KEPT):
                raise UndecidedDamageError(segment_path(directory, start), 0, gap)
            if unsynced in (UnsyncedWrites.LOST_ONLY_COPY, UnsyncedWrites.KEPT_ONLY_COPY):
                disk.open(segment_path(directory, start), create=True).close()
                return LogStart(start, [start, *kept], None)
            before_loss()
        kept = []
    for base in bases:
        if base not in kept:
            remove_segment(disk, segment_path(directory, base))
    return LogStart(start, kept, gap)


def _read_log_start(disk: Disk, directory: PurePath) -> int | None:
    """Returns None if the file is damaged. Then the first segment has the offset, unless a deletion
    or a reset was interrupted."""
    try:
        return int(read_checked(disk, directory / LOG_START_NAME, LOG_START_KIND))
    except DamagedFileError:
        return None
    except OSError as error:
        if is_unreadable(error):
            return None
        raise


def remove_segment(disk: Disk, path: PurePath) -> None:
    disk.remove(path)
    disk.remove(path.with_suffix(INDEX_SUFFIX))
    disk.remove(path.with_suffix(TIME_INDEX_SUFFIX))
