"""Makes damaged batches of logs in use unreadable, one segment after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import PurePath

from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log_errors import (
    LogCorruptError,
    LogError,
    LogStorageError,
    LogUnreadableError,
)
from tidelog_broker.storage.damaged_batches import OffsetRange
from tidelog_broker.storage.log_directory import LogDirectory

# A read failure that is over within this time costs no data.
UNREADABLE_PAUSE_S = 5.0

Damage = LogCorruptError | LogUnreadableError
QuarantineFailed = Callable[[ReplicaKey, LogError], None]
QuarantineEnded = Callable[[ReplicaKey, Sequence[OffsetRange], str], None]


class BatchQuarantine:
    """Makes each damage unreadable once, however often it is read meanwhile.

    All damage of one segment is handled together. Segments of one replica are queued separately.

    - `failed`: called if more is wrong than single batches.
    - `ended`: called with the ranges that have become unreadable.
    """

    def __init__(
        self,
        logs: LogDirectory,
        run_blocking: RunBlocking,
        failed: QuarantineFailed,
        ended: QuarantineEnded,
    ) -> None:
        self._logs = logs
        self._run_blocking = run_blocking
        self._failed = failed
        self._ended = ended
        # By replica and segment file; bounded by the number of segments.
        self._found: dict[tuple[ReplicaKey, PurePath], Damage] = {}
        self._is_found = asyncio.Event()
        # Held while segment files are checked, and copied beside themselves. A repair, which copies
        # to the same names, closes its log under it.
        self.checking = asyncio.Lock()

    def begin(self, key: ReplicaKey, error: Damage) -> None:
        self._found.setdefault((key, error.path), error)
        self._is_found.set()

    async def run(self) -> None:
        while True:
            await self._is_found.wait()
            self._is_found.clear()
            while self._found:
                place = next(iter(self._found))
                try:
                    await self._quarantine_fault(place[0], self._found[place])
                finally:
                    del self._found[place]

    async def _quarantine_fault(self, key: ReplicaKey, error: Damage) -> None:
        copies = isinstance(error, LogUnreadableError)
        if copies:
            await asyncio.sleep(UNREADABLE_PAUSE_S)
        log, name = self._logs.log_of(key), self._logs.name_of(key)
        if log is None or name is None or self._is_left_to_repair(key, error) or log.closed:
            return
        if log.failed is not None:
            self._failed(key, error)
            return
        evidence = self._logs.damaged_batches.evidence_of(name, key)
        try:
            check = log.begin_quarantine(error.path, evidence, copies)
        except (LogError, OSError) as failure:
            self._failed(key, _log_error(failure, error.path))
            return
        if check is None:
            return
        before = set(self._logs.damaged_batches.of(key))
        # Nothing else takes it before a check, so there is no await between `begin_quarantine` and
        # this, and the log is not closed in between.
        async with self.checking:
            await self._run_blocking(check.run)
        self._is_left_to_repair(key, error)
        if self._logs.log_of(key) is not log or log.closed:
            check.discard()
            return
        try:
            log.finish_quarantine(check)
        except LogUnreadableError as failure:
            if check.copies:
                self._failed(key, failure)
            else:
                # The error is behind the damage that was found.
                await self._quarantine_fault(key, failure)
            return
        except (LogError, OSError) as failure:
            self._failed(key, _log_error(failure, error.path))
            return
        sealed = [found for found in self._logs.damaged_batches.of(key) if found not in before]
        self._ended(key, sealed, error.reason)

    def _is_left_to_repair(self, key: ReplicaKey, error: Damage) -> bool:
        """Returns whether the replica is out of service. Its repair then checks everything."""
        if not self._logs.is_out_of_service(key):
            return False
        self._logs.take_out_of_service(key, str(error), check_all=True)
        return True


def _log_error(error: LogError | OSError, path: PurePath) -> LogError:
    if isinstance(error, LogError):
        return error
    return LogStorageError.of(error, path, "replace")
