"""What services say in their logs, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tidelog.state_changes.json_form import EVENT


def count_told(lines: Iterable[bytes], kind: str) -> int:
    """State changes of a kind, each stage by itself. A torn line is none."""
    found = 0
    mark = kind.encode()
    for line in lines:
        if mark not in line:
            continue
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("event") == EVENT and said.get("kind") == kind:
            found += 1
    return found


class FileLog:
    """A log file from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size if path.exists() else 0

    async def told(self, kind: str) -> int:
        if not self._path.exists():
            return 0
        with self._path.open("rb") as log:
            log.seek(self._start)
            return count_told(log, kind)
