"""Makes damaged batches of logs in use unreadable, one segment after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

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
# A batch that is not committed must not become unreadable: its producer would get it acknowledged
# later.
MAX_COMMIT_WAIT_S = 10.0
COMMIT_POLL_S = 0.1

Damage = LogCorruptError | LogUnreadableError
QuarantineFailed = Callable[[ReplicaKey, LogError], None]
QuarantineEnded = Callable[[ReplicaKey, Sequence[OffsetRange], str], None]


_Place = tuple[ReplicaKey, PurePath]


class _Found(NamedTuple):
    """Damage that is not handled yet.

    - `due_s`: time of the event loop from which it is handled.
    - `log_end_offset`: of the log when it was found. It is handled once all below is committed, or
      MAX_COMMIT_WAIT_S after `due_s`.
    """

    error: Damage
    due_s: float
    log_end_offset: int


class BatchQuarantine:
    """Makes each damage unreadable once, however often it is read meanwhile.

    All damage of one segment is handled together. Segments of one replica are queued separately.

    - `is_only_copy`: whether no other replica has the records; asked before and after the check of
      a segment.
    - `joined`: called if another replica has them now, or the log does not get committed. It has to
      let a repair open the log again.
    - `committed_end`: the end of what of a replica producers do not wait for.
    - `failed`: called if more is wrong than single batches.
    - `ended`: called with the ranges that have become unreadable.
    """

    def __init__(
        self,
        logs: LogDirectory,
        run_blocking: RunBlocking,
        is_only_copy: Callable[[ReplicaKey], bool],
        joined: QuarantineFailed,
        committed_end: Callable[[ReplicaKey], int],
        failed: QuarantineFailed,
        ended: QuarantineEnded,
    ) -> None:
        self._logs = logs
        self._run_blocking = run_blocking
        self._is_only_copy = is_only_copy
        self._joined = joined
        self._committed_end = committed_end
        self._failed = failed
        self._ended = ended
        # By replica and segment file; bounded by the number of segments.
        self._found: dict[_Place, _Found] = {}
        self._is_found = asyncio.Event()
        # Held while segment files are checked, and copied beside themselves. A repair, which copies
        # to the same names, closes its log under it.
        self.checking = asyncio.Lock()

    def begin(self, key: ReplicaKey, error: Damage) -> None:
        if (key, error.path) in self._found:
            return
        pause_s = UNREADABLE_PAUSE_S if isinstance(error, LogUnreadableError) else 0.0
        due_s = asyncio.get_running_loop().time() + pause_s
        log = self._logs.log_of(key)
        end = 0 if log is None else log.log_end_offset
        self._found[key, error.path] = _Found(error, due_s, end)
        self._is_found.set()

    async def run(self) -> None:
        while True:
            self._is_found.clear()
            while (place := self._next_due()) is not None:
                again = None
                try:
                    again = await self._quarantine_fault(place[0], self._found[place])
                finally:
                    del self._found[place]
                if again is not None:
                    self.begin(place[0], again)
            with suppress(TimeoutError):
                poll_s = asyncio.get_running_loop().time() + COMMIT_POLL_S
                due_s = min((max(f.due_s, poll_s) for f in self._found.values()), default=None)
                async with asyncio.timeout_at(due_s):
                    await self._is_found.wait()

    def _next_due(self) -> _Place | None:
        """Damage that waits delays no other."""
        now_s = asyncio.get_running_loop().time()
        for place, found in self._found.items():
            wait_s = 0.0 if self._is_committed(place[0], found) else MAX_COMMIT_WAIT_S
            if found.due_s + wait_s <= now_s:
                return place
        return None

    def _is_committed(self, key: ReplicaKey, found: _Found) -> bool:
        return self._committed_end(key) >= found.log_end_offset

    async def _quarantine_fault(self, key: ReplicaKey, found: _Found) -> Damage | None:
        """Returns damage of the same segment that has to be handled next."""
        error = found.error
        copies = isinstance(error, LogUnreadableError)
        log, name = self._logs.log_of(key), self._logs.name_of(key)
        if log is None or name is None or self._is_left_to_repair(key, error) or log.closed:
            return None
        if log.failed is not None:
            self._failed(key, error)
            return None
        if not self._is_only_copy(key) or not self._is_committed(key, found):
            self._joined(key, error)
            return None
        evidence = self._logs.damaged_batches.evidence_of(name, key)
        try:
            check = log.begin_quarantine(error.path, evidence, copies)
        except (LogError, OSError) as failure:
            self._failed(key, _log_error(failure, error.path))
            return None
        if check is None:
            return None
        before = set(self._logs.damaged_batches.of(key))
        # Nothing else takes it before a check, so there is no await between `begin_quarantine` and
        # this, and the log is not closed in between.
        async with self.checking:
            await self._run_blocking(check.run)
        self._is_left_to_repair(key, error)
        if self._logs.log_of(key) is not log or log.closed:
            check.discard()
            return None
        if not self._is_only_copy(key):
            check.discard()
            self._joined(key, error)
            return None
        try:
            log.finish_quarantine(check)
        except LogUnreadableError as failure:
            if check.copies:
                self._failed(key, failure)
            else:
                # The error is behind the damage that was found.
                return failure
            return None
        except (LogError, OSError) as failure:
            self._failed(key, _log_error(failure, error.path))
            return None
        sealed = [found for found in self._logs.damaged_batches.of(key) if found not in before]
        self._ended(key, sealed, error.reason)
        return None

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
