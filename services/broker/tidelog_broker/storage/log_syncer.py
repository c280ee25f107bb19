"""Group commit of topics with durability `synced` (section 3 of ARCHITECTURE.md; interleaving 9 of
ARCHITECTURE.md).

A log that has grown is synced at once; what is appended while its sync runs gathers for
the next one. So a sync takes as many batches as came in the time of the one before, and
the more there is to do, the larger they get.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Protocol

from tidelog_broker.background import RunBlocking
from tidelog_broker.log.errors import LogError, LogFailedError
from tidelog_broker.partition.partition import Partition
from tidelog_broker.storage.log_directory import LogDirectory

# Side by side, so that the file system makes one commit of many.
SYNCS_AT_ONCE = 8
# A log that could not be opened for its sync (too many open files) is tried again.
RETRY_DELAY_S = 0.2


class SyncListener(Protocol):
    """Called between two steps of the loop."""

    def log_synced(self, partition: Partition) -> None:
        """No sync of this log runs or waits for its turn any more, unless it has grown
        meanwhile; also where the log has gone."""

    def sync_put_off(self, partition: Partition, error: LogError) -> None:
        """It could not begin, and is tried again."""

    def sync_failed(self, partition: Partition, error: LogError) -> None:
        """Nobody knows what of this log is on the disk: it has failed, counts no further
        and takes no appends; whoever leads by it ought to resign."""


class LogSyncer:
    """`note` takes note; `run` does the syncing, each log by itself, at most
    SYNCS_AT_ONCE of them."""

    def __init__(
        self, logs: LogDirectory, run_blocking: RunBlocking, listener: SyncListener
    ) -> None:
        self._logs = logs
        self._run_blocking = run_blocking
        self._listener = listener
        # Both in the order in which they came.
        self._waiting: dict[Partition, None] = {}
        self._syncing: dict[Partition, None] = {}
        self._wake = asyncio.Event()

    def note(self, partition: Partition) -> None:
        self._waiting[partition] = None
        self._wake.set()

    def __len__(self) -> int:
        """How many logs wait for their sync, or are synced now."""
        return len(self._waiting) + len(self._syncing)

    def is_pending(self, partition: Partition) -> bool:
        return partition in self._waiting or partition in self._syncing

    async def run(self) -> None:
        async with asyncio.TaskGroup() as syncs:
            while True:
                await self._wake.wait()
                self._wake.clear()
                free = SYNCS_AT_ONCE - len(self._syncing)
                ready = (p for p in self._waiting if p not in self._syncing)
                for partition in list(islice(ready, free)):
                    del self._waiting[partition]
                    self._syncing[partition] = None
                    syncs.create_task(self._sync(partition))

    async def _sync(self, partition: Partition) -> None:
        error: LogError | None = None
        try:
            await self._flush(partition)
        except LogError as refused:
            error = refused
        del self._syncing[partition]
        self._wake.set()
        if error is None:
            self._listener.log_synced(partition)
        elif isinstance(error, LogFailedError):
            self._listener.sync_failed(partition, error)
        else:
            self._listener.sync_put_off(partition, error)
            asyncio.get_running_loop().call_later(RETRY_DELAY_S, self.note, partition)
            self._listener.log_synced(partition)

    async def _flush(self, partition: Partition) -> None:
        log = self._logs.log_of(partition.key)
        if log is None or log is not partition.log or log.closed:
            return  # set aside, deleted or opened anew meanwhile
        ticket = log.begin_flush()
        if ticket is not None:
            await self._run_blocking(ticket.run)
            try:
                log.finish_flush(ticket)
            except LogError:
                if log is partition.log:
                    raise
                return  # what failed is repaired: the log was opened anew meanwhile
        if log.flushed_offset < log.log_end_offset and not log.closed:
            self.note(partition)
