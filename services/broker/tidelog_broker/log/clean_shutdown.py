"""The marker that a clean stop leaves: what a log consists of, so that the next start
need not look.

It is removed before the first change after the start, and needs no sync for that: what
an append or a roll adds makes the marker's list of files and sizes wrong, and a marker
that does not fit is no marker. Only a cut could bring back what it lists, so a cut syncs
the directory. Nor is the marker itself synced, since the data that it is about was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.indexes import SegmentSummary

MARKER_NAME = "clean-shutdown"
_KIND = "clean-shutdown"


class MarkedSegment(NamedTuple):
    base_offset: int
    summary: SegmentSummary


def write_marker(disk: Disk, directory: PurePath, segments: Sequence[MarkedSegment]) -> None:
    value = [{"base_offset": base, **summary._asdict()} for base, summary in segments]
    write_checked(disk, directory / MARKER_NAME, _KIND, value, sync=False)


def read_marker(disk: Disk, directory: PurePath) -> list[MarkedSegment] | None:
    """None where there is none, or none that was written whole."""
    try:
        value = read_checked(disk, directory / MARKER_NAME, _KIND)
    except DamagedFileError:
        return None
    if value is None:
        return None
    return [MarkedSegment(entry.pop("base_offset"), SegmentSummary(**entry)) for entry in value]
