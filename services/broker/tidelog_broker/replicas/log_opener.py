"""Opens the logs of new replicas in a thread, before a command creates the replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.background import RunBlocking
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.replica_directories import LogOpening

# Logs that one thread opens for one command. A stop waits for them, and so does a call that its
# controller has cancelled.
OPENED_AT_ONCE = 64

NO_FAILURES: Mapping[ReplicaKey, Exception] = {}


class LogOpener:
    def __init__(self, logs: LogDirectory, run_blocking: RunBlocking, broker_id: int) -> None:
        self._logs = logs
        self._run_blocking = run_blocking
        self._broker_id = broker_id
        self._closed = False

    def close(self) -> None:
        """Opens no more logs: later calls return errors."""
        self._closed = True

    async def open(
        self, wanted: Iterable[tuple[TopicPartition, ReplicaKey]]
    ) -> Mapping[ReplicaKey, Exception]:
        """Opens the logs of replicas. Returns why those that failed could not be opened.

        The other logs are in the directory on return, even if the caller was cancelled. So nothing
        is on the disk that this process does not know, and no other command finds a log that is
        half created. One call at a time.
        """
        begun = {key: self._logs.begin_opening(name, key) for name, key in wanted}
        openings = [opening for opening in begun.values() if opening is not None]
        if not openings:
            return NO_FAILURES
        if self._closed:
            return {opening.key: self._is_stopping() for opening in openings}
        was_cancelled = await self._to_its_end(lambda: _run_all(openings))
        for opening in openings:
            self._logs.finish_opening(opening)
        if was_cancelled:
            raise asyncio.CancelledError
        return {o.key: o.error for o in openings if o.error is not None}

    def _is_stopping(self) -> TidelogError:
        return TidelogError(
            ErrorCode.STORAGE_ERROR,
            f"broker {self._broker_id} is stopping and creates no replicas",
        )

    async def _to_its_end(self, work: Callable[[], None]) -> bool:
        """Runs the work to its end.

        Returns whether the caller was cancelled meanwhile: a thread cannot be cancelled.
        """
        running = asyncio.ensure_future(self._run_blocking(work))
        was_cancelled = False
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                was_cancelled = True
        if running.cancelled():
            return True
        running.result()
        return was_cancelled


def _run_all(openings: Sequence[LogOpening]) -> None:
    for opening in openings:
        opening.run()
