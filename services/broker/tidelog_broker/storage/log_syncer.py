"""Group commit for topics with durability `synced` ("Durability" in docs/internals/protocol.md;
rule `damaged-replica-resigns-first`).

A log that has grown is synced at once. Batches that are appended during a sync wait for the next
one. So each sync covers the batches that arrived during the one before, and syncs grow with the
load. Logs that grew together, by one answer of a leader for example, are passed to one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.log.flush import FlushTicket
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError, LogFailedError, SyncHangsError
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock

# Concurrent, so that the file system commits several at once.
MAX_CONCURRENT_SYNCS = 8
# Passing a log to a thread takes as long as a sync on a fast disk. So one thread gets as many logs
# as it is likely to sync in so many milliseconds. On a slow disk each log has its own thread.
THREAD_MS = 4.0
MAX_LOGS_PER_THREAD = MAX_CONCURRENT_SYNCS // 2
# A thread that has taken this long leaves its other logs to threads of their own.
LATE_MS = 2 * THREAD_MS
# Weight of the newest sync in the moving average of the duration.
NEWEST_WEIGHT = 1 / 16
# A sync of one file that is running at so many checks in a row, one a second, hangs: the disk
# counts as failing until it returns. A log consists of several files: a slow disk that returns from
# each of them does not hang. Checks are counted, and not time: a process that did not run is no
# fault of the disk.
HANG_CHECKS = 10
# How many waiting logs one check reports.
MAX_REPORTED_WAITING = 1_000
# A log that could not be opened for its sync (too many open files) is retried.
RETRY_DELAY_S = 0.2


class SyncListener(Protocol):
    """Receives the results of syncs. Called between two steps of the loop."""

    def log_synced(self, partition: Partition) -> None:
        """No sync of this log is running or queued any more, unless it has grown meanwhile. Also
        called if the log is gone."""

    def sync_delayed(self, partition: Partition, error: LogError) -> None:
        """The sync could not begin and is retried, or it hangs. `log_synced` reports its end."""

    def sync_failed(self, partition: Partition, error: LogError) -> None:
        """It is unknown which data of this log is on disk.

        The log has failed: it does not count further and rejects appends. A leader that uses it has
        to resign."""


class _RunningSync(NamedTuple):
    partition: Partition
    log: Log
    ticket: FlushTicket


@dataclass(slots=True)
class _Watched:
    """Logs that one thread syncs. `checks`: at how many in a row none of their files came to an
    end."""

    tickets: Sequence[FlushTicket] = ()
    steps_done: int = 0
    checks: int = 0

    def check(self) -> None:
        steps_done = sum(ticket.steps_done for ticket in self.tickets)
        self.checks = 1 if steps_done != self.steps_done else self.checks + 1
        self.steps_done = steps_done


class LogSyncer:
    """Syncs logs that `note` has queued. `run` syncs at most MAX_CONCURRENT_SYNCS logs at once."""

    def __init__(
        self, logs: LogDirectory, run_blocking: RunBlocking, clock: Clock, listener: SyncListener
    ) -> None:
        self._logs = logs
        self._run_blocking = run_blocking
        self._clock = clock
        self._listener = listener
        # Both in the order of arrival. With whether it was reported that the log waits for hanging
        # syncs.
        self._waiting: dict[Partition, bool] = {}
        self._syncing: dict[Partition, _Watched] = {}
        self._log_ms = 0.0  # moving average of the duration of one sync
        self._wake = asyncio.Event()

    def note(self, partition: Partition) -> None:
        self._waiting.setdefault(partition, False)
        self._wake.set()

    def __len__(self) -> int:
        """Returns how many logs wait for their sync, or are being synced."""
        return len(self._waiting) + len(self._syncing)

    def is_pending(self, partition: Partition) -> bool:
        return partition in self._waiting or partition in self._syncing

    async def run(self) -> None:
        async with asyncio.TaskGroup() as syncs:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while partitions := self._take_ready():
                    syncs.create_task(self._sync(partitions))

    def check_hangs(self) -> bool:
        """Reports syncs that made no progress at HANG_CHECKS in a row. Returns whether any did.

        Each is reported at each check. If all syncs hang that may run at once, those that wait hang
        as well: they are reported once. Called once a second."""
        for watched in {id(each): each for each in self._syncing.values()}.values():
            watched.check()
        hanging = [p for p, each in self._syncing.items() if each.checks >= HANG_CHECKS]
        for partition in hanging:
            error = SyncHangsError(
                f"a sync of {partition.name} has not returned for {HANG_CHECKS} s or longer; check "
                "the disk, and move the replica if it is failing"
            )
            self._listener.sync_delayed(partition, error)
        if len(hanging) >= MAX_CONCURRENT_SYNCS:
            self._report_waiting()
        return bool(hanging)

    def _report_waiting(self) -> None:
        error = SyncHangsError(
            f"it waits for {MAX_CONCURRENT_SYNCS} syncs that have not returned for {HANG_CHECKS} s "
            "or longer; check the disk, and move the replica if it is failing"
        )
        unreported = (
            partition
            for partition, is_reported in self._waiting.items()
            if not is_reported and partition not in self._syncing
        )
        for partition in list(islice(unreported, MAX_REPORTED_WAITING)):
            self._waiting[partition] = True
            self._listener.sync_delayed(partition, error)

    def _take_ready(self) -> Sequence[Partition]:
        """Returns what one thread is to sync next."""
        count = min(MAX_LOGS_PER_THREAD, MAX_CONCURRENT_SYNCS - len(self._syncing))
        if self._log_ms * count > THREAD_MS:
            count = max(1, int(THREAD_MS / self._log_ms))
        ready = (p for p in self._waiting if p not in self._syncing)
        taken = list(islice(ready, count))
        watched = _Watched()
        for partition in taken:
            del self._waiting[partition]
            self._syncing[partition] = watched
        return taken

    async def _sync(self, partitions: Sequence[Partition]) -> None:
        begun: list[_RunningSync] = []
        errors: dict[Partition, LogError] = {}
        for partition in partitions:
            log = self._logs.log_of(partition.key)
            if log is None or log is not partition.log or log.closed:
                continue  # set aside, deleted or reopened meanwhile
            try:
                ticket = log.begin_flush()
            except LogError as error:
                errors[partition] = error
                continue
            if ticket is not None:
                begun.append(_RunningSync(partition, log, ticket))
        if begun:
            tickets = [sync.ticket for sync in begun]
            self._syncing[partitions[0]].tickets = tickets
            await self._run(tickets)
        for partition, log, ticket in begun:
            try:
                log.finish_flush(ticket)
            except LogError as error:
                # Otherwise the log was reopened meanwhile, which repaired it.
                if log is partition.log:
                    errors[partition] = error
                continue
            if log.flushed_offset < log.log_end_offset and not log.closed:
                self.note(partition)
        for partition in partitions:
            del self._syncing[partition]
        self._wake.set()
        for partition in partitions:
            self._notify(partition, errors.get(partition))

    async def _run(self, tickets: Sequence[FlushTicket]) -> None:
        """Syncs in one thread. If it is late, each of the other tickets gets its own thread."""
        took_ms = done = 0

        def run() -> None:
            nonlocal took_ms, done
            began_ms = self._clock.monotonic_ms()
            while done < len(tickets) and took_ms <= LATE_MS:
                tickets[done].run()
                done += 1
                took_ms = self._clock.monotonic_ms() - began_ms

        await self._run_blocking(run)
        self._log_ms += (took_ms / done - self._log_ms) * NEWEST_WEIGHT
        await asyncio.gather(*(self._run_blocking(ticket.run) for ticket in tickets[done:]))

    def _notify(self, partition: Partition, error: LogError | None) -> None:
        if error is None:
            self._listener.log_synced(partition)
        elif isinstance(error, LogFailedError):
            self._listener.sync_failed(partition, error)
        else:
            # In this order: the delay stands until a later sync has succeeded.
            self._listener.log_synced(partition)
            self._listener.sync_delayed(partition, error)
            asyncio.get_running_loop().call_later(RETRY_DELAY_S, self.note, partition)
