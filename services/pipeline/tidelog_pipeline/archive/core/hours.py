"""The hours of an archive, and those to compact or to expire. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from tidelog_pipeline.archive.core.commits import AddedFile, ArchiveState

HOUR_MS = 3_600_000
_HOUR = re.compile(r"(?:^|/)date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})$")


class ArchivedHour(NamedTuple):
    """The files of one topic and hour. `path`: their directory."""

    path: str
    files: tuple[AddedFile, ...]
    end_ms: int

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def file_count(self, target_bytes: int) -> int:
        """Returns the number of files after a compaction."""
        return -(-sum(file.size_bytes for file in self.files) // target_bytes)


def hours_of(state: ArchiveState) -> Iterator[ArchivedHour]:
    """Yields the hours, ordered by path. Directories that are not of an hour are left out."""
    for path, files in sorted(state.files.items()):
        end_ms = end_of_hour_ms(path)
        if files and end_ms is not None:
            yield ArchivedHour(path, tuple(files[name] for name in sorted(files)), end_ms)


def hours_to_compact(
    state: ArchiveState, now_ms: int, closed_after_ms: int, target_bytes: int
) -> list[ArchivedHour]:
    """Returns hours that ended long enough ago, have at least two small files, and get fewer.

    A small file is below half of the target. A compaction shares rows equally among its files, so
    some of them are small if the sizes of rows differ much: they are not rewritten again.
    """
    return [
        hour
        for hour in hours_of(state)
        if hour.end_ms + closed_after_ms <= now_ms
        and sum(file.size_bytes * 2 < target_bytes for file in hour.files) > 1
        and hour.file_count(target_bytes) < len(hour.files)
    ]


def hours_before(state: ArchiveState, before_ms: int) -> list[ArchivedHour]:
    """Returns the hours that have ended by then."""
    return [hour for hour in hours_of(state) if hour.end_ms <= before_ms]


def before_damaged(
    hours: Collection[ArchivedHour], damaged: Collection[str], before_ms: int
) -> tuple[list[ArchivedHour], int]:
    """Returns the hours before the first one with a damaged file, of any topic.

    Also returns the time before which everything is expired then.
    """
    starts = [
        hour.end_ms - HOUR_MS for hour in hours if any(file.path in damaged for file in hour.files)
    ]
    horizon_ms = min([before_ms, *starts])
    return [hour for hour in hours if hour.end_ms <= horizon_ms], horizon_ms


def whole_hours_ms(before_ms: int) -> int:
    """Returns the end of the last hour that has ended by then."""
    return before_ms // HOUR_MS * HOUR_MS


def end_of_hour_ms(path: str) -> int | None:
    """Returns the end of an hour, from the name of its directory; None: not an hour."""
    named = _HOUR.search(path)
    if named is None:
        return None
    began = datetime.strptime(f"{named[1]} {named[2]}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    return int(began.timestamp() * 1000) + HOUR_MS
