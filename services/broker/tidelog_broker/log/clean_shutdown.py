"""What a clean stop leaves of a log: what it consists of, so that the next start need not
look.

A broker's logs leave one file for all of them, for to make files is what a stop of ten thousand
would take its time with. It is not synced, since the data that it is about was. Nobody removes
it: what it says of a log is believed where the same segments are there, and end with the very same
batch, whose checksums cover its offset, leader epoch and time, so that a log which was cut and grew
again by another leader ends with another; and where it is known to have been synced up to there
(its recovery point, which a cut lowers), since what was copied anew from the same leader is the
same, and may yet be on no disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

import structlog

from tidelog.model import NO_OFFSET
from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.indexes import SegmentSummary

_KIND = "clean-logs"

_log = structlog.get_logger()


class KnownSegment(NamedTuple):
    base_offset: int
    summary: SegmentSummary


class LastBatch(NamedTuple):
    """Where it begins in its segment, and its checksums, the broker's and the producer's."""

    position: int
    broker_crc32c: int
    crc32c: int


class CleanLog(NamedTuple):
    """`last`: the last batch, in the last segment that is not empty; None: there is none.
    `producers`: those at the log's end, as `ProducerStates.to_value` tells them; None: they are
    to be read."""

    segments: tuple[KnownSegment, ...]
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
    write_checked(disk, path, _KIND, value, sync=False)


def read_all(disk: Disk, path: PurePath) -> dict[tuple[str, int], CleanLog]:
    """Nothing where it is not there, or cannot be used: then logs are read."""
    try:
        value = read_checked(disk, path, _KIND)
        return {
            (topic_id, partition): CleanLog(
                tuple(KnownSegment(base, SegmentSummary(*rest)) for base, *rest in segments),
                None if last is None else LastBatch(*last),
                producers,
            )
            for topic_id, partition, segments, last, producers in value or ()
        }
    except (DamagedFileError, OSError, TypeError, ValueError) as error:
        _log.warning("clean_logs_not_used", why=f"{type(error).__name__}: {error}")
        return {}
