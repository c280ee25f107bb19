"""Finds valid frames that lie in the wrong segment files ("Misplaced segments" in
docs/internals/log-format.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from tidelog.batch import is_damaged
from tidelog.log_format import (
    FRAME_HEADER_BYTES,
    MAX_OFFSET,
    FrameError,
    ReadAt,
    find_frame,
    parse_frame,
    segment_base,
    walk_frames,
)
from tidelog.model import BatchHeader
from tidelog_broker.log.bad_sectors import BadSectorReader, is_unreadable
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.quarantine import Fault, valid_frame

ASIDE_SUFFIX = ".aside"
_ASIDE_NAME = re.compile(rf"([0-9]{{20}})\.log\.[0-9]+{re.escape(ASIDE_SUFFIX)}")


def is_set_aside(name: str) -> bool:
    """Returns whether an interrupted arrangement left a file of this name."""
    return _ASIDE_NAME.fullmatch(name) is not None


def is_misplaced(disk: Disk, path: PurePath, base: int) -> bool:
    """Returns whether the segment file begins with the header of a batch at another offset.

    Raises OSError."""
    offset = _first_offset(disk, path)
    return offset is not None and offset != base


def is_outlived(disk: Disk, path: PurePath, log_start: int) -> bool:
    """Returns whether the segment file does not begin with a batch at or above the log's start."""
    offset = _first_offset(disk, path)
    return offset is None or offset < log_start


def has_misplaced_frame(
    read: ReadAt, fault: Fault, following: int | None, latest_epoch: int
) -> bool:
    """Returns whether the bytes at a fault hold a valid frame that cannot belong there.

    The next segment begins at offset `following`. Behind damage a frame at a later offset may
    belong there, unless its leader epoch is lower than the `latest_epoch` before it."""
    position, expected, end, _ = fault
    at = position
    while at < end:
        header = valid_frame(read, at, end)
        if header is not None:
            is_later = header.base_offset > expected
            fits = following is None or header.next_offset <= following
            return at == position or not (is_later and fits and header.leader_epoch >= latest_epoch)
        at = behind_damage(read, at, end)
    return False


def _first_offset(disk: Disk, path: PurePath) -> int | None:
    file = disk.open(path)
    try:
        data = file.read_at(FRAME_HEADER_BYTES, 0)
    except OSError as error:
        if is_unreadable(error):
            return None
        raise
    finally:
        file.close()
    if len(data) < FRAME_HEADER_BYTES:
        return None
    try:
        return parse_frame(data, 0, None).header.base_offset
    except FrameError:
        return None


class FrameRun(NamedTuple):
    """Valid frames of one leader epoch in one file, without a gap between their offsets.

    - `is_in_place`: they may lie where the log wrote them.
    - `is_unreadable`: a batch that was made unreadable; a run of its own.
    """

    path: PurePath
    position: int
    size: int
    first_offset: int
    next_offset: int
    leader_epoch: int
    is_in_place: bool
    is_unreadable: bool

    @property
    def end(self) -> int:
        return self.position + self.size


@dataclass(slots=True)
class SegmentFile:
    """A segment file; `is_aside`: an interrupted arrangement has renamed it."""

    path: PurePath
    base: int
    size: int
    is_aside: bool
    runs: list[FrameRun] = field(default_factory=list)

    def valid_from(self, position: int) -> int:
        """Returns where the first valid frame at or behind this position begins, or the file's
        size."""
        return next((max(position, r.position) for r in self.runs if r.end > position), self.size)


def find_files(disk: Disk, directory: PurePath) -> list[SegmentFile]:
    files = []
    for name in sorted(disk.list_names(directory)):
        path, base, aside = directory / name, segment_base(name), _ASIDE_NAME.fullmatch(name)
        if base is None and aside is not None:
            base = int(aside[1])
        if base is not None:
            files.append(SegmentFile(path, base, disk.file_size(path), aside is not None))
    bases = sorted(file.base for file in files if not file.is_aside)
    for file in files:
        following = next((base for base in bases if base > file.base), MAX_OFFSET)
        opened = disk.open(file.path)
        try:
            file.runs = list(_find_runs(BadSectorReader(opened).read_at, file, following))
        finally:
            opened.close()
    return files


def _find_runs(read: ReadAt, file: SegmentFile, following: int) -> Iterator[FrameRun]:
    """Yields the runs of a file; the next segment's name says `following`, where a run in place
    ends."""
    run: FrameRun | None = None
    reached = file.base
    is_misplaced = file.is_aside
    for position, size, header in _valid_frames(read, file.size):
        unreadable = is_damaged(header)
        if (
            run is not None
            and run.end == position
            and run.next_offset == header.base_offset
            and run.leader_epoch == header.leader_epoch
            and not (unreadable or run.is_unreadable)
            and (not run.is_in_place or header.base_offset < following)
        ):
            run = run._replace(size=run.size + size, next_offset=header.next_offset)
            continue
        if run is not None:
            yield run
            reached = run.next_offset if run.is_in_place else reached
        is_misplaced |= position == 0 and header.base_offset != file.base
        in_place = not is_misplaced and reached <= header.base_offset < following
        run = FrameRun(
            file.path,
            position,
            size,
            header.base_offset,
            header.next_offset,
            header.leader_epoch,
            in_place,
            unreadable,
        )
    if run is not None:
        yield run


def _valid_frames(read: ReadAt, end: int) -> Iterator[tuple[int, int, BatchHeader]]:
    """Yields position, size and header of each valid frame, whatever its offset."""
    position = 0
    while position < end:
        began = position
        for info in walk_frames(read, end, start=position, verify=True):
            if info.fault is None and info.header is not None:
                yield info.position, info.size, info.header
                position = info.position + info.size
            elif info.position == began:
                position = behind_damage(read, position, end)


def behind_damage(read: ReadAt, position: int, end: int) -> int:
    """Returns where the frame behind a damaged one begins. While the header of that is valid, no
    frame inside it counts: a record may hold one."""
    data = read(FRAME_HEADER_BYTES, position)
    if len(data) == FRAME_HEADER_BYTES:
        try:
            behind = position + parse_frame(data, 0, None).length
        except FrameError:
            behind = end + 1
        if behind == end or (behind < end and find_frame(read, behind, end) == behind):
            return behind
    found = find_frame(read, position + 1, end)
    return end if found is None else found
