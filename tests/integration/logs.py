"""Reads the log of a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidelog.state_changes.json_form import EVENT


class LogSince:
    """The lines of a log from now on, or from its start."""

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        self._path = path
        self._start = 0 if from_start or not path.exists() else path.stat().st_size

    def text(self) -> str:
        if not self._path.exists():
            return ""
        with self._path.open("rb") as log:
            log.seek(self._start)
            return log.read().decode(errors="replace")

    def state_changes(self, kind: str, stage: str | None = None) -> list[dict[str, Any]]:
        """The state changes of that kind, in any stage unless one is given."""
        return [
            line
            for line in self.events(EVENT)
            if line["kind"] == kind and stage in (None, line["stage"])
        ]

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of that name, or that report state changes of that kind."""
        lines = self.text().splitlines(keepends=True)
        # A line without its end is still being written.
        found = (json.loads(line) for line in lines if line.startswith("{") and "\n" in line)
        return [line for line in found if name in (line.get("event"), _kind_of(line))]


def _kind_of(line: dict[str, Any]) -> object:
    return line.get("kind") if line.get("event") == EVENT else None
