"""What a clean stop stores about each log, so that the next start need not read the log.

All logs of a broker share one file, because creating ten thousand files would dominate the time of
a stop. It is not synced, since the data that it describes was. It is never removed. An entry is
trusted on three conditions:

- The same segments exist.
- They end with the same batch. Its checksums cover offset, leader epoch and time, so that a log
  that was cut and has grown again under another leader ends with another batch.
- The recovery point, which a cut lowers, is at the log's end. Batches that were copied again from
  the same leader are equal, and may not be on disk yet.
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
    """The position of the last batch in its segment, and its checksums.

    `broker_crc32c` is the broker's, and `crc32c` the producer's."""

    position: int
    broker_crc32c: int
    crc32c: int


class CleanLog(NamedTuple):
    """The state of one log at a clean stop.

    - `last`: the last batch, in the last segment that is not empty; None: there is none.
    - `producers`: those at the log's end, as `ProducerStates.to_value` returns them; None: they
      have to be read.
    """

    segments: tuple[KnownSegment, ...]
    last: LastBatch | None
    producers: Any = None

    @property
    def end_offset(self) -> int:
        return self.segments[-1].summary.next_offset if self.segments else NO_OFFSET


def write_clean_logs(disk: Disk, path: PurePath, logs: Mapping[tuple[str, int], CleanLog]) -> None:
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


def read_clean_logs(disk: Disk, path: PurePath) -> dict[tuple[str, int], CleanLog]:
    """Returns nothing if the file is missing or unusable; then the logs are read."""
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
