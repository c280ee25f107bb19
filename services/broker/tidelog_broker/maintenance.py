"""Periodic work of a broker: evaluates ISRs, writes checkpoints, syncs logs, deletes old data."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from functools import partial

import structlog

from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_broker.background import RunBlocking
from tidelog_broker.clock_check import ClockCheck
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import NOBODY, CrowdedOut
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.stalls import stalled_ms
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.replicas.high_watermark_events import HighWatermarkEvents
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.replicas.stray_events import StrayEvents
from tidelog_broker.replication.isr_updates import IsrUpdates
from tidelog_broker.storage.checkpoints import CheckpointWrite
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.strays import Stray
from tidelog_runtime.clock import Clock

# The event loop runs after each slice of this many partitions.
PARTITIONS_PER_TURN = 32
MAX_CONCURRENT_FLUSHES = 8
MAX_FLUSH_PAUSE_MS = 1_000
# After each deleted stray: a file system that frees much space at once delays writers.
STRAY_PAUSE_S = 0.05

_log = structlog.get_logger()

# Returns the strays that may be deleted.
ConfirmStrays = Callable[[list[Stray]], Awaitable[list[Stray]]]


class Maintenance:
    def __init__(
        self,
        manager: ReplicaManager,
        logs: LogDirectory,
        isr_updates: IsrUpdates,
        high_watermarks: HighWatermarkEvents,
        clock: Clock,
        run_blocking: RunBlocking,
        confirm_strays: ConfirmStrays,
        note_revision: Callable[[], None],
        stray_events: StrayEvents,
        clock_check: ClockCheck,
        note_clock: Callable[[], None] = lambda: None,
    ) -> None:
        self._manager = manager
        self._logs = logs
        self._isr_updates = isr_updates
        self._high_watermarks = high_watermarks
        self._clock = clock
        self._run_blocking = run_blocking
        self._confirm_strays = confirm_strays
        self._note_revision = note_revision
        self._stray_events = stray_events
        self._clock_check = clock_check
        self._note_clock = note_clock
        # Producers evicted by the replicas here, since the start.
        self.crowded_out = NOBODY
        # Checkpoints are written one at a time.
        self._writing = threading.Lock()

    async def evaluate_isrs(self, interval_ms: int) -> None:
        """Evaluates the ISRs of the led partitions periodically.

        A broker that stalled has received no fetches meanwhile. It grants each follower a full lag
        time before the next evaluation (rule `quiet-partition-reports-its-end`), and restarts the
        time after which a high watermark counts as stalled.
        """
        while True:
            began_ms = self._clock.monotonic_ms()
            await asyncio.sleep(interval_ms / 1000)
            now_ms = self._clock.monotonic_ms()
            stood_still_ms = stalled_ms(now_ms - began_ms, interval_ms)
            if stood_still_ms:
                self._emit_stall(stood_still_ms)
                self._high_watermarks.restart_timers(now_ms)
                for partition in self._manager.led():
                    partition.grant_followers(now_ms)
            active = self._isr_updates.evaluate_all(self._manager)
            self._manager.disk.judge()
            await self._check_high_watermarks(active, now_ms)

    def _emit_stall(self, for_ms: int) -> None:
        """Emits the stall, which explains what other brokers did meanwhile."""
        state_changes = self._manager.state_changes
        state_changes.emit(
            Kind.BROKER_STALLED,
            Stage.COMPLETED,
            change=state_changes.condition_change("stall", Cause.NONE, for_ms),
            broker=self._manager.broker_id,
            broker_epoch=self._manager.broker_epoch,
            details={"stalled_ms": for_ms},
        )

    async def _check_high_watermarks(self, active: Sequence[Partition], now_ms: int) -> None:
        """Checks `active` partitions and those that had waiting records at the last check.

        All records of the other partitions are committed.
        """
        self._high_watermarks.forget_led_no_more()
        looked_at = dict.fromkeys((*active, *self._high_watermarks.waiting))
        for position, partition in enumerate(looked_at):
            if position % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            if partition.leading is not None:
                self._high_watermarks.judge(partition, now_ms)

    async def write_checkpoints(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self._checkpoint_in_thread()

    def checkpoint(self) -> bool:
        """Writes a checkpoint in the calling thread.

        Returns whether it was written; if not, the older one stays, which is safe.
        """
        write = self._begin_checkpoint()
        try:
            self._write(write)
            return self._logs.finish_checkpoint(write)
        except OSError as error:
            return _not_written(error)

    async def _checkpoint_in_thread(self, *, sync: bool = False) -> bool:
        write = self._begin_checkpoint(sync=sync)
        try:
            await self._run_blocking(lambda: self._write(write))
            return self._logs.finish_checkpoint(write)
        except OSError as error:
            return _not_written(error)

    def _begin_checkpoint(self, *, sync: bool = False) -> CheckpointWrite:
        offsets = {p.key: p.high_watermark for p in self._manager.all()}
        return self._logs.begin_checkpoint(offsets, sync=sync)

    def _write(self, checkpoint: CheckpointWrite) -> None:
        with self._writing:
            checkpoint.run()
            if checkpoint.done:
                self._note_revision()

    async def flush(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.flush_once(gently=True)

    async def flush_once(self, *, gently: bool = False) -> None:
        """Syncs all logs with unsynced data.

        Several logs are synced in parallel: the file system then makes one commit of many.
        `gently`: pauses half of the time, because other writers wait for such commits as well.
        """
        keys = list(filter(self._needs_flush, self._logs.keys()))
        for first in range(0, len(keys), MAX_CONCURRENT_FLUSHES):
            began_ms = self._clock.monotonic_ms()
            await asyncio.gather(*map(self._flush, keys[first : first + MAX_CONCURRENT_FLUSHES]))
            if gently:
                pause_ms = min(self._clock.monotonic_ms() - began_ms, MAX_FLUSH_PAUSE_MS)
                await asyncio.sleep(pause_ms / 1000)

    def _needs_flush(self, key: ReplicaKey) -> bool:
        log = self._logs.log_of(key)
        return log is not None and log.needs_flush

    async def _flush(self, key: ReplicaKey) -> None:
        log = self._logs.log_of(key)
        if log is None or log.closed or log.failed is not None:
            return  # set aside, deleted or under repair; or its failure was reported
        try:
            ticket = log.begin_flush()
            if ticket is not None:
                await self._run_blocking(ticket.run)
                log.finish_flush(ticket)
                self._note_flushed(key)
        except LogError as error:
            if self._logs.log_of(key) is log:
                self._manager.log_failed(key, error)

    def _note_flushed(self, key: ReplicaKey) -> None:
        """A hang lasts until the syncs that producers wait for return."""
        rejection = self._manager.disk.of(key)
        if rejection is not None and not rejection.is_hang:
            self._manager.disk.took(key, "synced")

    async def delete_old(self, interval_ms: int) -> None:
        while True:
            try:
                await self._run_blocking(self._note_clock)
            except OSError as error:
                _log.warning("clock_not_written", reason=str(error))
            await asyncio.sleep(interval_ms / 1000)
            self._clock_check.check(self._clock.wall_ms(), self._clock.monotonic_ms())
            await self._delete_old_segments(list(self._manager.all()))

    async def delete_strays(self, interval_ms: int, stray_retention_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await self._sweep(stray_retention_ms)
                await self._run_blocking(self._logs.damaged_batches.sweep)
            except OSError as error:
                _log.error("sweep_failed", why=str(error))

    async def expire_producers(
        self, interval_ms: int, expiration_ms: int, named: Callable[[], Container[int]]
    ) -> None:
        """Expires silent producers periodically.

        `named` returns the producers whose name exists; they are kept. Each replica uses its own
        clock: for a producer that was silent for this long it does not matter that replicas forget
        it at slightly different times.
        """
        while True:
            await asyncio.sleep(interval_ms / 1000)
            expired, crowded_out = 0, NOBODY
            for position, partition in enumerate(list(self._manager.all())):
                if position % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
                producers = partition.log.producers
                expired += producers.states.expire(
                    self._steady_ms(),
                    expiration_ms,
                    monotonic_ms=self._clock.monotonic_ms(),
                    named=named(),
                )
                crowded_out = crowded_out.and_(producers.take_crowded_out())
            if expired:
                _log.info("producers_expired", producers=expired)
            if crowded_out != NOBODY:
                self._report_crowded_out(crowded_out)

    def _report_crowded_out(self, crowded_out: CrowdedOut) -> None:
        """Adds to the total, and logs one line for each round."""
        self.crowded_out = self.crowded_out.and_(crowded_out)
        _log.warning(
            "producers_crowded_out",
            recent=crowded_out.recent,
            older=crowded_out.older,
            why="more producers without a name wrote to a partition than it remembers; those that "
            "wrote within the last 10 minutes may write a retry of their first batch twice",
            fix="find clients that create a producer for each task, and let them reuse one; or use "
            "more partitions",
        )

    async def _sweep(self, stray_retention_ms: int) -> None:
        """Deletes expired strays that the store confirms as not assigned to this broker."""
        strays: list[Stray] = []
        await self._run_blocking(
            lambda: strays.extend(self._logs.strays.expired(stray_retention_ms))
        )
        if not strays:
            return
        strays = await self._confirm_strays(strays)
        # A replica that a checkpoint names and that does not exist counts as damage. So a
        # checkpoint without these strays is synced first. Strays that are set aside after it wait
        # for the next round.
        if strays and await self._checkpoint_in_thread(sync=True):
            deleted: list[Stray] = []
            try:
                for stray in strays:
                    await self._run_blocking(partial(self._logs.strays.delete, stray))
                    deleted.append(stray)
                    await asyncio.sleep(STRAY_PAUSE_S)
            finally:
                self._stray_events.deleted(tuple(deleted))

    async def _delete_old_segments(self, partitions: Iterable[Partition]) -> None:
        """Deletes old segments. The event loop runs after each deletion, which syncs the log."""
        for position, partition in enumerate(partitions):
            if position % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            while self._delete_some(partition):  # noqa: ASYNC110 - each call does a part
                await asyncio.sleep(0)

    def _delete_some(self, partition: Partition) -> bool:
        """Returns whether there may be more to delete."""
        log = self._logs.log_of(partition.key)
        if log is None or log.closed or log.failed is not None:
            return False
        try:
            deleted = self._delete_old(log, partition)
        except LogError as error:
            self._manager.replica_failed(partition, error)
            return False
        if deleted and partition.leading is not None:
            partition.log_start_moved()
        if deleted:
            _log.info(
                "segments_deleted",
                partition=str(partition.name),
                segments=deleted,
                log_start_offset=log.log_start_offset,
            )
        return deleted > 0

    def _delete_old(self, log: Log, partition: Partition) -> int:
        """Deletes segments by age and size on the leader.

        Followers delete what the leader has deleted, so that all replicas agree and no other clock
        than the leader's counts.
        """
        if partition.leading is not None:
            check, clocks = self._clock_check, (self._clock.wall_ms(), self._clock.monotonic_ms())
            now_ms = check.retention_ms(*clocks) if check.check(*clocks) else None
            append_ms = 0 if now_ms is None else check.latest_ms(*clocks)
            return log.delete_old_segments(now_ms, partition.high_watermark, append_ms)
        return log.delete_below(min(partition.leader_log_start, partition.high_watermark))

    def _steady_ms(self) -> int:
        return self._clock_check.steady_ms(self._clock.wall_ms(), self._clock.monotonic_ms())


def _not_written(error: OSError) -> bool:
    _log.error("checkpoint_failed", why=str(error))
    return False
