"""High watermarks and recovery points of all logs of a broker, as the disk has them.

A checkpoint may be old: while logs only grow it says too little, which is safe. But a log that
is cut below what the disk says of it, and then grows again, would at the next start count as
committed, and as synced, up to an offset at which other records lie now. So the cut is noted
first, and the note stays until checkpoints that were written after it are on the disk.
"""

from __future__ import annotations

from pathlib import PurePath

import structlog

from tidelog_broker.log.checkpoint import OffsetCheckpoint
from tidelog_broker.log.disk import Disk
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.storage.replica_notes import ReplicaNotes

_log = structlog.get_logger()


class Checkpoints:
    """Every method that reads or writes blocks, and raises OSError."""

    def __init__(self, disk: Disk, data_dir: PurePath) -> None:
        self._high_watermark_file = OffsetCheckpoint(disk, data_dir / "high-watermarks")
        self._recovery_point_file = OffsetCheckpoint(disk, data_dir / "recovery-points")
        self._notes = ReplicaNotes(disk, data_dir / "cuts", "cut", if_damaged=lambda _: 0)
        self._high_watermarks: dict[ReplicaKey, int] = {}
        self._recovery_points: dict[ReplicaKey, int] = {}
        # Cut below what the disk may say of them.
        self._cut: dict[ReplicaKey, None] = {}

    def read(self) -> None:
        self._notes.prepare()
        self._high_watermarks = _read(self._high_watermark_file)
        self._recovery_points = _read(self._recovery_point_file)
        for key, offset in self._notes.read().items():
            self._lower(key, offset)

    def high_watermark(self, key: ReplicaKey) -> int:
        """0: never written."""
        return self._high_watermarks.get(key, 0)

    def recovery_point(self, key: ReplicaKey) -> int:
        """0: never written."""
        return self._recovery_points.get(key, 0)

    def highest(self, key: ReplicaKey) -> int:
        """Up to which there must be a log, by either."""
        return max(self.high_watermark(key), self.recovery_point(key))

    def keys(self) -> set[ReplicaKey]:
        return self._recovery_points.keys() | self._high_watermarks.keys()

    def note_cut(self, key: ReplicaKey, offset: int) -> None:
        """Before that log is cut to the offset. On the disk on return."""
        if offset < self.highest(key):
            self._notes.write(key, offset)
            self._lower(key, offset)

    def opened(self, key: ReplicaKey, log_end_offset: int) -> None:
        """Before it grows again `write` is called."""
        if log_end_offset < self.highest(key):
            self._lower(key, log_end_offset)

    def _lower(self, key: ReplicaKey, offset: int) -> None:
        for offsets in (self._high_watermarks, self._recovery_points):
            if offsets.get(key, 0) > offset:
                offsets[key] = offset
        self._cut[key] = None

    def write(
        self,
        high_watermarks: dict[ReplicaKey, int],
        recovery_points: dict[ReplicaKey, int],
        *,
        sync: bool = False,
    ) -> None:
        """Replaces all."""
        sync = sync or bool(self._cut)
        self._high_watermark_file.write(high_watermarks, sync=sync)
        self._recovery_point_file.write(recovery_points, sync=sync)
        self._high_watermarks, self._recovery_points = high_watermarks, recovery_points
        # A note that comes back after a power failure makes the next start read more.
        while self._cut:
            key = next(iter(self._cut))
            self._notes.remove(key)
            del self._cut[key]


def _read(file: OffsetCheckpoint) -> dict[ReplicaKey, int]:
    content = file.read()
    if content.damage is not None:
        _log.warning("checkpoint_damaged", why=content.damage)
    return {ReplicaKey(*key): offset for key, offset in content.offsets.items()}
