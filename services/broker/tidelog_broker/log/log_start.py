"""Finds the segments of a log that is opened, and its first offset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

import structlog

from tidelog.log_format import SEGMENT_SUFFIX, segment_base
from tidelog_broker.log.bad_sectors import is_unreadable
from tidelog_broker.log.checked_file import DamagedFileError, read_checked
from tidelog_broker.log.disk import TEMPORARY_SUFFIX, Disk
from tidelog_broker.log.indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog_broker.log.log_errors import UndecidedDamageError
from tidelog_broker.log.misplaced_batches import is_outlived, is_set_aside
from tidelog_broker.log.segment import segment_path
from tidelog_broker.log.unsynced_writes import UnsyncedWrites

LOG_START_NAME = "log-start-offset"
LOG_START_KIND = "log-start-offset"
# Earlier releases marked a cleanly stopped log by this file. It is removed, so that after a
# downgrade they do not trust a log that has changed.
LEGACY_MARKER_NAME = "clean-shutdown"

_log = structlog.get_logger()

BeforeLoss = Callable[[], None]
"""Called before valid data is cut: after a crash right behind the cut the log would appear
intact."""


class LogStart(NamedTuple):
    """`is_interrupted`: an arrangement of the segments was interrupted."""

    log_start_offset: int
    bases: list[int]
    gap: str | None
    is_interrupted: bool = False


def list_segments(disk: Disk, directory: PurePath) -> list[int]:
    """Returns the base offsets of all segment files, sorted.

    A file with another name is not the broker's. It stays, and a warning names it."""
    bases = []
    for name in disk.list_names(directory):
        base = segment_base(name)
        if base is not None:
            bases.append(base)
        elif name.endswith(SEGMENT_SUFFIX):
            _log.warning("unknown_file", path=str(directory / name), fix="move it elsewhere")
    return sorted(bases)


def find_segments(
    disk: Disk,
    directory: PurePath,
    before_loss: BeforeLoss,
    unsynced: UnsyncedWrites,
    min_end_offset: int,
) -> LogStart:
    """Returns the segments that belong to the log. Removes all others, and temporary files.

    The first one begins at the log's start. Older ones are left from an interrupted deletion. If
    none begins there, a reset was interrupted or segments are missing. Then none is kept, because a
    replica that holds an offset is assumed to hold all below it. In an only copy an empty segment
    replaces the missing ones, whose offsets become unreadable. The log reached at least
    `min_end_offset`."""
    names = disk.list_names(directory)
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX) or name == LEGACY_MARKER_NAME:
            disk.remove(directory / name)
    bases = list_segments(disk, directory)
    start = _read_log_start(disk, directory) if LOG_START_NAME in names else 0
    is_interrupted = any(map(is_set_aside, names))
    if start is None:
        start = bases[0] if bases else 0
    may_keep_all = unsynced.is_only_copy or unsynced.is_undecided
    kept = [
        base
        for base in bases
        if base >= start
        or (may_keep_all and not is_outlived(disk, segment_path(directory, base), start))
    ]
    gap = None
    if kept[:1] != [start]:
        first = f"its first segment at {kept[0]}" if kept else "and has no segment"
        reason = f"the log begins at offset {start}, {first}"
        if (kept or start < min_end_offset) and unsynced.is_undecided:
            raise UndecidedDamageError(segment_path(directory, start), 0, reason)
        if (kept or start < min_end_offset) and unsynced.is_only_copy:
            disk.open(segment_path(directory, start), create=True).close()
            kept = sorted({*kept, start})
        elif kept:
            before_loss()
            gap, kept = reason, []
    for base in bases:
        if base not in kept:
            remove_segment(disk, segment_path(directory, base))
    return LogStart(start, kept, gap, is_interrupted)


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
