"""Reopens a log whose disk or content has failed while the broker ran.

This happens only after the replica has resigned, because invalid data is cut (rule
`damaged-replica-resigns-first`)."""

from __future__ import annotations

from functools import partial
from pathlib import PurePath

import structlog

from tidelog_broker.log.bad_sectors import replace_file
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import (
    LogError,
    LogInterruptedError,
    LogStorageError,
    LogUnreadableError,
)
from tidelog_broker.log.log_start import list_segments
from tidelog_broker.log.quarantine import Evidence, discard_evidence
from tidelog_broker.log.segment import segment_path
from tidelog_broker.log.unsynced_writes import UnsyncedWrites

_log = structlog.get_logger()


class Reopening:
    """Reopens one log. Call `run` once, in a thread if need be; then `log` or `error` is set.

    The log has open files of its own; `Log.share_files` replaces them by those of the log thread.

    - `check_from`: everything from this offset on is checked, and cut where it is invalid.
    - `rewrite_from`: everything from this offset on is first written to new files, because after a
      failed fsync the kernel regards as written what it could not write. None: no fsync has failed
      in this process or the one before it.
    - `min_end_offset`: the log reached at least this offset.
    - `is_only_copy`: no other replica has the records.
    """

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        config: LogConfig,
        *,
        check_from: int,
        rewrite_from: int | None,
        evidence: Evidence = discard_evidence,
        min_end_offset: int = 0,
        is_only_copy: bool = False,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self.check_from = check_from
        self._rewrite_from = rewrite_from
        self._evidence = evidence
        self._least_end = min_end_offset
        self._unsynced = (
            UnsyncedWrites.REWRITTEN_ONLY_COPY if is_only_copy else UnsyncedWrites.REWRITTEN
        )
        self.log: Log | None = None
        self.error: LogError | None = None

    def run(self) -> None:
        try:
            self.log = self._open()
        except OSError as error:
            self.error = LogStorageError.of(error, self._directory, "repair the log in")
        except LogError as error:
            self.error = error
        except Exception as error:
            # A fault of this program costs one replica and not the broker.
            _log.exception("log_not_repaired", path=str(self._directory))
            self.error = LogInterruptedError(self._directory, error, "repair")

    def _open(self) -> Log:
        if self._rewrite_from is not None:
            rewrite_segments(self._disk, self._directory, self._rewrite_from)
        opening = partial(
            Log.open,
            self._disk,
            self._directory,
            self._config,
            evidence=self._evidence,
            min_end_offset=self._least_end,
            unsynced=self._unsynced,
        )
        try:
            return opening(recovery_point=self.check_from)
        except LogUnreadableError:
            # The unreadable part is below `check_from`.
            return opening(recovery_point=0)


def rewrite_segments(disk: Disk, directory: PurePath, start: int) -> None:
    """Copies every segment with offsets at or above `start` to a new file, and syncs it.

    What an fsync could not write, no later fsync of the same file writes. Unreadable parts are
    damaged in the copy."""
    bases = list_segments(disk, directory)
    if not bases:
        return
    ends = [*bases[1:], None]
    for base, end in zip(bases, ends, strict=True):
        if end is None or end > start:
            replace_file(disk, segment_path(directory, base))
    disk.sync_directory(directory)
