"""Open segment files of all logs of a broker, of which at most a fixed number is open."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import PurePath

from tidelog_broker.log.disk import Disk, DiskFile
from tidelog_broker.log.indexes import SegmentIndexes

# Well below the usual limit of 1,024 open files per process, which sockets share.
MAX_OPEN_SEGMENTS = 512


class OpenSegment:
    """An open segment file.

    `indexes`: set by the first search in a sealed segment; dropped when the file is closed.
    """

    __slots__ = ("file", "indexes")

    def __init__(self, file: DiskFile) -> None:
        self.file = file
        self.indexes: SegmentIndexes | None = None


class SegmentFiles:
    """An LRU cache of open segment files, for one thread only."""

    def __init__(self, disk: Disk, max_open: int = MAX_OPEN_SEGMENTS) -> None:
        self.disk = disk
        self._max_open = max_open
        self._open: OrderedDict[PurePath, OpenSegment] = OrderedDict()

    def get(self, path: PurePath) -> OpenSegment:
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        opened = OpenSegment(self.disk.open(path))
        self._open[path] = opened
        if len(self._open) > self._max_open:
            _, oldest = self._open.popitem(last=False)
            oldest.file.close()
        return opened

    def forget(self, path: PurePath) -> None:
        found = self._open.pop(path, None)
        if found is not None:
            found.file.close()

    def close(self) -> None:
        while self._open:
            _, opened = self._open.popitem()
            opened.file.close()

    def __len__(self) -> int:
        return len(self._open)
