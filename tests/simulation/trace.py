"""The trace of a run: one line an event, the last ones for a person, a digest for comparisons."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping

RING_LINES = 1_000


class Tracer:
    """Collects lines. `keep_all`: every line is kept, else the last RING_LINES."""

    def __init__(self, *, keep_all: bool = False) -> None:
        self._lines: deque[str] = deque(maxlen=None if keep_all else RING_LINES)
        self._hash = hashlib.blake2b(digest_size=16)
        self.count = 0

    def add(self, now_ms: int, who: str, event: str, fields: Mapping[str, object]) -> None:
        said = "".join([f" {key}={value}" for key, value in fields.items()])
        line = f"{now_ms} {who} {event}{said}"
        self._lines.append(line)
        self._hash.update(line.encode())
        self.count += 1

    def lines(self, last: int = RING_LINES) -> list[str]:
        return list(self._lines)[-last:]

    def all_lines(self) -> list[str]:
        return list(self._lines)

    def digest(self) -> str:
        return self._hash.hexdigest()
