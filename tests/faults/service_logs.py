"""The logs of services, with one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tidelog.state_changes.event import Kind, Stage
from tidelog.state_changes.json_form import EVENT

Fields = Mapping[str, Any]


def logged(lines: Iterable[bytes], event: str) -> Iterator[Fields]:
    """The lines of one event. A torn line is skipped."""
    mark = event.encode()
    for line in lines:
        if mark not in line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("event") == event:
            yield entry


def state_changes(lines: Iterable[bytes], kind: str) -> Iterator[Fields]:
    """The state changes of a kind; each stage is an entry."""
    mark = kind.encode()
    marked = (line for line in lines if mark in line)
    return (entry for entry in logged(marked, EVENT) if entry.get("kind") == kind)


def logged_ms(lines: Iterable[bytes], kind: str, topic: str = "") -> list[int]:
    """The times at which state changes of a kind were logged, by the wall clock of their service.

    `topic`: only changes of this topic."""
    entries = state_changes(lines, kind)
    return [at_ms(entry) for entry in entries if topic in ("", entry.get("topic"))]


def fences_ignored(lines: Iterable[bytes]) -> list[tuple[int, str]]:
    """When a controller logged that it leaves a broker to its lease, because the broker had been
    removed too often recently; and which broker."""
    return [
        (at_ms(entry), f"broker-{entry['broker']}")
        for entry in state_changes(lines, Kind.BROKER_FENCED.value)
        if entry.get("stage") == Stage.IGNORED.value and "removals" in entry.get("details", {})
    ]


def at_ms(entry: Fields) -> int:
    return round(datetime.fromisoformat(entry["time"]).timestamp() * 1000)


class FileLog:
    """A log file from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size if path.exists() else 0

    async def logged_ms(self, kind: str, topic: str = "") -> list[int]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(self._start)
            return logged_ms(log, kind, topic)
