"""How far a replica's log is durable on the simulated disk.

Production's own `flushed_offset` is compared with this, and used for nothing else.
"""

from __future__ import annotations

from collections import deque
from pathlib import PurePath
from typing import NamedTuple, Protocol

from tidelog.log_format import SEGMENT_SUFFIX


class KeptBytes(Protocol):
    def durable_bytes(self, path: PurePath) -> int | None:
        """Returns how many bytes from the file's start on a power failure would leave unchanged.

        It is None if there is no such file, not even one whose name is not synced.
        """


class _Written(NamedTuple):
    """A log reaches to `end_offset` when the segment at `base_offset` has `size` bytes."""

    end_offset: int
    base_offset: int
    size: int


class DurableEnd:
    """The durable end of one replica."""

    def __init__(self) -> None:
        self.offset = 0
        self._written: deque[_Written] = deque()

    def opened(self, segments: list[tuple[int, int, int]], end_offset: int) -> None:
        """Begins with a log that was opened, of which no more is known to be durable than before.

        - `segments`: of each, the offset at which it ends, the one at which it begins, and its
          size
        """
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
        """Drops what retention has deleted, which ends at or below `start`."""
        while self._written and self._written[0].end_offset <= start:
            self._written.popleft()
        self.offset = max(self.offset, start)

    def reset(self, offset: int) -> None:
        self._written.clear()
        self.offset = offset

    def look(self, disk: KeptBytes, directory: PurePath) -> int:
        """Checks the disk after a sync, and returns the offset below which all is durable."""
        while self._written:
            end_offset, base_offset, size = self._written[0]
            path = directory / f"{base_offset:020d}{SEGMENT_SUFFIX}"
            kept = disk.durable_bytes(path)
            # A segment that retention has deleted need not be durable.
            if kept is not None and kept < size:
                break
            self.offset = max(self.offset, end_offset)
            self._written.popleft()
        return self.offset
