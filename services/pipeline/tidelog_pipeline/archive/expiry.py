"""Which hours of an archive are removed on purpose. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_pipeline.archive.commits import AddedFile, ArchiveState
from tidelog_pipeline.archive.compaction import HOUR_MS, end_of_hour_ms


class ExpiredHour(NamedTuple):
    path: str
    files: tuple[AddedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def whole_hours_ms(before_ms: int) -> int:
    """The end of the last hour that has ended by then."""
    return before_ms // HOUR_MS * HOUR_MS


def hours_before(state: ArchiveState, before_ms: int) -> list[ExpiredHour]:
    """Those that have ended by then. What has no hour is left as it is."""
    found = []
    for path, files in sorted(state.files.items()):
        end_ms = end_of_hour_ms(path)
        if files and end_ms is not None and end_ms <= before_ms:
            found.append(ExpiredHour(path, tuple(files[name] for name in sorted(files))))
    return found
