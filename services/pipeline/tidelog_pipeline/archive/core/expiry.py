"""Selects the hours of an archive to expire. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidelog_pipeline.archive.core.commits import AddedFile, ArchiveState
from tidelog_pipeline.archive.core.compaction import HOUR_MS, end_of_hour_ms


class ExpiredHour(NamedTuple):
    path: str
    files: tuple[AddedFile, ...]
    end_ms: int

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def whole_hours_ms(before_ms: int) -> int:
    """Returns the end of the last hour that has ended by then."""
    return before_ms // HOUR_MS * HOUR_MS


def hours_before(state: ArchiveState, before_ms: int) -> list[ExpiredHour]:
    """Returns the hours that have ended by then.

    Directories that are not of an hour stay as they are.
    """
    found = []
    for path, files in sorted(state.files.items()):
        end_ms = end_of_hour_ms(path)
        if files and end_ms is not None and end_ms <= before_ms:
            found.append(ExpiredHour(path, tuple(files[name] for name in sorted(files)), end_ms))
    return found


def before_damaged(
    hours: Iterable[ExpiredHour], damaged: Collection[str], before_ms: int
) -> tuple[list[ExpiredHour], int]:
    """Returns the hours before the first one with a damaged file, of any topic.

    Also returns the time before which everything is expired then.
    """
    listed = list(hours)
    starts = [
        hour.end_ms - HOUR_MS for hour in listed if any(file.path in damaged for file in hour.files)
    ]
    horizon_ms = min([before_ms, *starts])
    return [hour for hour in listed if hour.end_ms <= horizon_ms], horizon_ms
