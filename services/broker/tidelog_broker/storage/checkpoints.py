"""The high watermarks and recovery points of all logs of a broker, as they are on disk.

A checkpoint may be old: while logs only grow, its offsets are too low, which is safe. It is
different if a log is cut below its checkpointed offset and grows again. The next start would count
other records as committed and synced. So a cut is first noted on disk, and the note stays until
later checkpoints are on disk.

Checkpoints are written in a thread while logs are in use: a file system that commits other writes
may block the replacement of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import NamedTuple

import structlog

from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS, OffsetCheckpoint
from tidelog_broker.log.disk import Disk
from tidelog_broker.storage.replica_notes import ReplicaNotes

_log = structlog.get_logger()

Offsets = dict[ReplicaKey, int]


class Cut(NamedTuple):
    """`offset` is the lowest one of the cuts that the checkpoints on disk may not contain yet."""

    offset: int
    number: int


class CheckpointWrite:
    """One write of both files, created by `Checkpoints.begin`. Call `run` once, then pass it to
    `Checkpoints.finish`."""

    def __init__(
        self,
        files: tuple[OffsetCheckpoint, OffsetCheckpoint],
        offsets: tuple[Offsets, Offsets],
        cuts: Mapping[ReplicaKey, Cut],
        is_latest: Callable[[CheckpointWrite], bool],
        *,
        sync: bool,
        is_written: bool = False,
    ) -> None:
        """`is_written`: the disk has these very offsets already."""
        self._files = files
        self._is_latest = is_latest
        self._sync = sync
        self._is_written = is_written
        self.offsets = offsets
        self.cuts = cuts
        self.done = False
        self.error: OSError | None = None

    def run(self) -> None:
        """Writes both files. Blocks; only one write may run at a time.

        Does nothing if a later write was begun, which has newer offsets. An `OSError` is kept for
        `finish`."""
        if not self._is_latest(self):
            return
        try:
            if not self._is_written:
                for file, offsets in zip(self._files, self.offsets, strict=True):
                    file.write(offsets, sync=self._sync)
        except OSError as error:
            self.error = error
        self.done = True


class Checkpoints:
    """The checkpoint files. Methods that read or note block, and raise OSError."""

    def __init__(self, disk: Disk, data_dir: PurePath) -> None:
        self._high_watermark_file = OffsetCheckpoint(disk, data_dir / HIGH_WATERMARKS)
        self._recovery_point_file = OffsetCheckpoint(disk, data_dir / RECOVERY_POINTS)
        self._notes = ReplicaNotes(disk, data_dir / "cuts", "cut", if_damaged=lambda _: 0)
        # The offsets that the disk may have. While a write runs, or after it failed, these are the
        # higher ones of old and new.
        self._high_watermarks: Offsets = {}
        self._recovery_points: Offsets = {}
        # Logs that were cut below the offset that the disk may have.
        self._cut: dict[ReplicaKey, Cut] = {}
        self._cuts = 0
        self._latest: CheckpointWrite | None = None
        # What the last successful write left on disk; None: unknown.
        self._written_last: tuple[Offsets, Offsets] | None = None

    def read(self) -> None:
        self._notes.prepare()
        self._high_watermarks = _read(self._high_watermark_file)
        self._recovery_points = _read(self._recovery_point_file)
        for key, offset in self._notes.read().items():
            self._lower(key, offset)

    def high_watermark(self, key: ReplicaKey) -> int:
        """Returns 0 if it was never written."""
        return self._high_watermarks.get(key, 0)

    def recovery_point(self, key: ReplicaKey) -> int:
        """Returns 0 if it was never written."""
        return self._recovery_points.get(key, 0)

    def highest(self, key: ReplicaKey) -> int:
        """Returns the offset up to which there must be a log, by either file."""
        return max(self.high_watermark(key), self.recovery_point(key))

    def keys(self) -> set[ReplicaKey]:
        return self._recovery_points.keys() | self._high_watermarks.keys()

    def note_cut(self, key: ReplicaKey, offset: int) -> None:
        """Notes that the log is about to be cut to the offset. On disk on return."""
        if offset < self.highest(key):
            # A note is never raised: the disk may still have the checkpoint for which it was
            # written.
            standing = self._cut.get(key)
            lowest = offset if standing is None else min(offset, standing.offset)
            self._notes.write(key, lowest)
            self._lower(key, lowest)

    def opened(self, key: ReplicaKey, log_end_offset: int) -> None:
        """Lowers the offsets of a log that ends below them. Checkpoints are written before it grows
        again."""
        if log_end_offset < self.highest(key):
            self._lower(key, log_end_offset)

    def _lower(self, key: ReplicaKey, offset: int) -> None:
        for offsets in (self._high_watermarks, self._recovery_points):
            if offsets.get(key, 0) > offset:
                offsets[key] = offset
        self._cuts += 1
        self._cut[key] = Cut(offset, self._cuts)

    def begin(
        self, high_watermarks: Offsets, recovery_points: Offsets, *, sync: bool = False
    ) -> CheckpointWrite:
        """Returns a write that replaces all offsets.

        If nothing has changed, as on an idle broker, it writes nothing, unless it has to be
        synced."""
        offsets, sync = (high_watermarks, recovery_points), sync or bool(self._cut)
        self._high_watermarks = _higher(self._high_watermarks, high_watermarks)
        self._recovery_points = _higher(self._recovery_points, recovery_points)
        self._latest = CheckpointWrite(
            (self._high_watermark_file, self._recovery_point_file),
            offsets,
            dict(self._cut),
            self._is_latest,
            sync=sync,
            is_written=not sync and offsets == self._written_last,
        )
        self._written_last = None
        return self._latest

    def _is_latest(self, write: CheckpointWrite) -> bool:
        return write is self._latest

    def finish(self, write: CheckpointWrite) -> bool:
        """Completes a write after `write.run()`. Returns whether that has written it.

        Raises the error that it met."""
        if write.error is not None:
            raise write.error
        if self._is_latest(write):
            self._written(write)
        return write.done

    def _written(self, write: CheckpointWrite) -> None:
        self._written_last = high_watermarks, recovery_points = write.offsets
        self._high_watermarks = _lower_of(high_watermarks, self._high_watermarks)
        self._recovery_points = _lower_of(recovery_points, self._recovery_points)
        # A note that reappears after a power failure only makes the next start read more.
        for key, cut in write.cuts.items():
            if self._cut.get(key) == cut:
                self._notes.remove(key)
                del self._cut[key]


def _higher(former: Offsets, latter: Offsets) -> Offsets:
    return former | {key: max(offset, former.get(key, 0)) for key, offset in latter.items()}


def _lower_of(written: Offsets, known: Offsets) -> Offsets:
    """Returns the written offsets, lowered to those of logs that were cut during the write."""
    return {key: min(offset, known[key]) for key, offset in written.items()}


def _read(file: OffsetCheckpoint) -> Offsets:
    content = file.read()
    if content.damage is not None:
        _log.warning("checkpoint_damaged", why=content.damage)
    return {ReplicaKey(*key): offset for key, offset in content.offsets.items()}
