"""Opens a log anew whose disk or content has failed while the broker ran.

Only after the replica has resigned: what is not sound is cut (interleaving 9 of
docs/internals/interleavings.md).
"""

from __future__ import annotations

from functools import partial
from pathlib import PurePath

from tidelog.log_format import SEGMENT_SUFFIX
from tidelog_broker.log.bad_sectors import replace_file
from tidelog_broker.log.config import LogConfig
from tidelog_broker.log.damage_seal import Evidence, discard_evidence
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.errors import LogError, LogStorageError, LogUnreadableError
from tidelog_broker.log.log import Log
from tidelog_broker.log.segment import segment_path


class Reopening:
    """`run` it once, in a thread if need be; then `log` or `error` is set. The log has open
    files of its own, which it is to give up for those that the thread of the logs shares.

    All from the offset `check_from` on is checked, and cut where it stops being sound.
    `rewrite_from`: all from there on is written to new files first, because after a
    failed fsync the kernel takes for written what it could not write; None: no fsync
    has failed, in this life or the former one. `least_end`: so far the log reached."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        config: LogConfig,
        *,
        check_from: int,
        rewrite_from: int | None,
        evidence: Evidence = discard_evidence,
        least_end: int = 0,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._check_from = check_from
        self._rewrite_from = rewrite_from
        self._evidence = evidence
        self._least_end = least_end
        self.log: Log | None = None
        self.error: LogError | None = None

    def run(self) -> None:
        try:
            self.log = self._open()
        except OSError as error:
            self.error = LogStorageError.of(error, self._directory, "repair the log in")
        except LogError as error:
            self.error = error

    def _open(self) -> Log:
        if self._rewrite_from is not None:
            rewrite_segments(self._disk, self._directory, self._rewrite_from)
        opening = partial(
            Log.open,
            self._disk,
            self._directory,
            self._config,
            evidence=self._evidence,
            least_end=self._least_end,
        )
        try:
            return opening(recovery_point=self._check_from)
        except LogUnreadableError:
            # In what is taken for sound.
            return opening(recovery_point=0)


def rewrite_segments(disk: Disk, directory: PurePath, start: int) -> None:
    """Copies every segment that holds anything from the offset `start` on to a new file, and
    syncs it: what an fsync could not write, no later one of the same file does. What cannot be read
    is damaged there."""
    bases = sorted(
        int(name.removesuffix(SEGMENT_SUFFIX))
        for name in disk.list_names(directory)
        if name.endswith(SEGMENT_SUFFIX)
    )
    if not bases:
        return
    ends = [*bases[1:], None]
    for base, end in zip(bases, ends, strict=True):
        if end is None or end > start:
            replace_file(disk, segment_path(directory, base))
    disk.sync_directory(directory)
