"""How far a replica's log is on its disk, as the simulated disk has it. Production's own
`flushed_offset` is compared with this, and counts for nothing else."""

from __future__ import annotations

from collections import deque
from pathlib import PurePath
from typing import NamedTuple, Protocol

from tidelog.log_format import SEGMENT_SUFFIX


class KeptBytes(Protocol):
    def durable_bytes(self, path: PurePath) -> int | None:
        """How many bytes of a file a power failure would leave as they are, from its start on;
        None: there is no such file, not even a name that is not synced."""


class _Written(NamedTuple):
    """A log reaches to `end_offset` where the segment from `base_offset` on has `size` bytes."""

    end_offset: int
    base_offset: int
    size: int


class DurableEnd:
    """Of one replica."""

    def __init__(self) -> None:
        self.offset = 0
        self._written: deque[_Written] = deque()

    def opened(self, segments: list[tuple[int, int, int]], end_offset: int) -> None:
        """`segments`: of a log as it was opened, by the offset at which each ends, the one at which
        it begins, and its size. Nothing of them is known to be durable beyond what was."""
        self.cut(end_offset)
        self._written = deque(
            _Written(*segment) for segment in segments if segment[0] > self.offset
        )

    def written(self, end_offset: int, base_offset: int, size: int) -> None:
        if end_offset > self.offset:
            self._written.append(_Written(end_offset, base_offset, size))

    def cut(self, offset: int) -> None:
        self.offset = min(self.offset, offset)
        while self._written and self._written[-1].end_offset > offset:
            self._written.pop()

    def forget_below(self, start: int) -> None:
        """Retention has deleted what ends at or below it."""
        while self._written and self._written[0].end_offset <= start:
            self._written.popleft()
        self.offset = max(self.offset, start)

    def reset(self, offset: int) -> None:
        self._written.clear()
        self.offset = offset

    def look(self, disk: KeptBytes, directory: PurePath) -> int:
        """After a sync: the offset below which all is durable."""
        while self._written:
            end_offset, base_offset, size = self._written[0]
            path = directory / f"{base_offset:020d}{SEGMENT_SUFFIX}"
            kept = disk.durable_bytes(path)
            # A segment that retention has deleted owes nothing.
            if kept is not None and kept < size:
                break
            self.offset = max(self.offset, end_offset)
            self._written.popleft()
        return self.offset
