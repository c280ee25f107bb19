"""Selects the hours of an archive to rewrite: few large files instead of many small ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from tidelog_pipeline.archive.core.commits import AddedFile, ArchiveState

HOUR_MS = 3_600_000
_HOUR = re.compile(r"(?:^|/)date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})$")


class HourToCompact(NamedTuple):
    """An hour to compact. `path`: its directory; `file_count`: its number of files afterwards."""

    path: str
    files: tuple[AddedFile, ...]
    file_count: int

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def hours_to_compact(
    state: ArchiveState, now_ms: int, closed_after_ms: int, target_bytes: int
) -> list[HourToCompact]:
    """Returns hours that ended long enough ago and have at least two small files.

    A small file is below half of the target. Directories that are not of an hour stay as they
    are.
    """
    found = []
    for path, files in sorted(state.files.items()):
        small = [file for file in files.values() if file.size_bytes * 2 < target_bytes]
        end_ms = end_of_hour_ms(path)
        if len(small) > 1 and end_ms is not None and end_ms + closed_after_ms <= now_ms:
            all_files = tuple(files[name] for name in sorted(files))
            found.append(HourToCompact(path, all_files, _file_count(all_files, target_bytes)))
    return found


def _file_count(files: Iterable[AddedFile], target_bytes: int) -> int:
    return -(-sum(file.size_bytes for file in files) // target_bytes)


def end_of_hour_ms(path: str) -> int | None:
    """Returns the end of an hour, from the name of its directory; None: not an hour."""
    named = _HOUR.search(path)
    if named is None:
        return None
    began = datetime.strptime(f"{named[1]} {named[2]}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    return int(began.timestamp() * 1000) + HOUR_MS
