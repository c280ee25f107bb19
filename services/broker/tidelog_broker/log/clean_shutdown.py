"""What a clean stop leaves of a log: what it consists of, so that the next start need not
look.

A log that is closed by itself leaves a marker in its directory. It is removed before the first
change after the start, and needs no sync for that: what an append or a roll adds makes the
marker's list of files and sizes wrong, and a marker that does not fit is no marker. Only a cut
could bring back what it lists, so a cut syncs the directory. Nor is the marker itself synced,
since the data that it is about was.

A broker's logs leave one file for all of them, for to make files is what a stop of ten thousand
would take its time with. Nobody removes it: what it says of a log is believed where the same
segments are there, and end with the very same batch, whose checksums cover its offset, leader
epoch and time, so that a log which was cut and grew again by another leader ends with another; and
where it is known to have been synced up to there (its recovery point, which a cut lowers), since
what was copied anew from the same leader is the same, and may yet be on no disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import structlog

from tidelog.model import NO_OFFSET
from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.indexes import SegmentSummary

MARKER_NAME = "clean-shutdown"
_KIND = "clean-shutdown"
_ALL_KIND = "clean-logs"

_log = structlog.get_logger()


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


class LastBatch(NamedTuple):
    """Where it begins in its segment, and its checksums, the broker's and the producer's."""

    position: int
    broker_crc32c: int
    crc32c: int


class CleanLog(NamedTuple):
    """`last`: the last batch, in the last segment that is not empty; None: there is none.
    `producers`: those at the log's end, as `ProducerStates.to_value` tells them; None: they are
    to be read."""

    segments: tuple[MarkedSegment, ...]
    last: LastBatch | None
    producers: Any = None

    @property
    def end_offset(self) -> int:
        return self.segments[-1].summary.next_offset if self.segments else NO_OFFSET


def write_all(disk: Disk, path: PurePath, logs: Mapping[tuple[str, int], CleanLog]) -> None:
    """Raises OSError."""
    value = [
        [
            topic_id,
            partition,
            [[base, *summary] for base, summary in log.segments],
            log.last,
            log.producers,
        ]
        for (topic_id, partition), log in logs.items()
    ]
    write_checked(disk, path, _ALL_KIND, value, sync=False)


def read_all(disk: Disk, path: PurePath) -> dict[tuple[str, int], CleanLog]:
    """Nothing where it is not there, or cannot be used: then logs are read."""
    try:
        value = read_checked(disk, path, _ALL_KIND)
        return {
            (topic_id, partition): CleanLog(
                tuple(MarkedSegment(base, SegmentSummary(*rest)) for base, *rest in segments),
                None if last is None else LastBatch(*last),
                producers,
            )
            for topic_id, partition, segments, last, producers in value or ()
        }
    except (DamagedFileError, OSError, TypeError, ValueError) as error:
        _log.warning("clean_logs_not_used", why=f"{type(error).__name__}: {error}")
        return {}
