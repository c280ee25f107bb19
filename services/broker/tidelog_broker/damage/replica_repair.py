"""Takes a damaged replica out of service, lets it resign, checks its log, and puts it back. Then
its leader repairs it (rule `damaged-replica-resigns-first`).

The order is: found → out of service → marked on disk → resigned → checked → back, as a follower
that is in no ISR. Nothing may be cut before the metadata store records that this replica is not
intact. The check makes damaged batches unreadable, and cuts only if their end is unknown. The
follower copies them from its leader in place (`MissingBatches`). What is behind them does not count
until the leader has answered. If no other replica can lead, the partition has no leader until a
recovery elects one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import structlog

from tidelog.log_format import MAX_OFFSET
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes.event import NO_REVISION, Cause, Detail, Kind, Stage
from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.missing_batches import (
    NOTHING_MISSING,
    Answer,
    MissingBatches,
    Range,
)
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.damage.batch_quarantine import BatchQuarantine
from tidelog_broker.damage.other_replicas import OtherReplicas, leads_alone
from tidelog_broker.damage.resignations import Resignations
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import (
    LogCorruptError,
    LogError,
    LogFailedError,
    LogStorageError,
    LogUnreadableError,
)
from tidelog_broker.storage.damaged_batches import OffsetRange
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.replica_directories import DamagedReplica
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.store import StoreRolledBackError
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

FIRST_RETRY_DELAY_S = 1.0
MAX_RETRY_DELAY_S = 60.0
# A replica that fails again within this time is put back only after a pause.
STEADY_MS = 10 * 60_000

_log = structlog.get_logger()


def repair_delay_s(failures: int) -> float:
    """Returns 0 after the first failure, then a second, which doubles with each failure."""
    if failures <= 1:
        return 0.0
    return min(MAX_RETRY_DELAY_S, FIRST_RETRY_DELAY_S * 2.0 ** min(failures - 2, 10))


class Replicas(Protocol):
    """The replicas of the broker."""

    @property
    def broker_epoch(self) -> int: ...

    def find(self, key: ReplicaKey) -> Partition | None: ...

    def suspend(self, key: ReplicaKey) -> None:
        """Takes the replica out of service at once: it neither leads nor follows until `resume`."""

    def resume(self, key: ReplicaKey, log: Log, resigned_at: int) -> None:
        """Puts the replica back. Decisions before this revision of its key have no effect any
        more."""

    def rejected(self, key: ReplicaKey, error: LogError) -> None:
        """The disk has rejected an operation of the replica, and nothing is lost."""


class Damage(NamedTuple):
    """A damage that is not repaired yet.

    - `since_ms`: of the monotonic clock.
    - `led_epoch`: the leader epoch if the replica led when it was found.
    """

    cause: Cause
    reason: str
    since_ms: int
    led_epoch: int = NO_EPOCH


@dataclass(slots=True)
class _Repair:
    failures: int = 0
    failed_at_ms: int = 0
    due_s: float = 0.0  # time of the loop
    resigned_at: int = 0  # revision of the partition's key


class ReplicaRepair:
    """Repairs replicas. `failed` records a failure; `resign_failed` and `repair_resigned` run until
    the broker stops."""

    def __init__(
        self,
        logs: LogDirectory,
        replicas: Replicas,
        resignations: Resignations,
        clock: Clock,
        rng: random.Random,
        run_blocking: RunBlocking,
        checkpoint: Callable[[], object],
        broker_id: int,
        state_changes: StateChangeLog,
        others: OtherReplicas,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._resignations = resignations
        self._clock = clock
        self._rng = rng
        self._run_blocking = run_blocking
        self._checkpoint = checkpoint
        self._broker_id = broker_id
        self._state_changes = state_changes
        self._others = others
        self._quarantine = BatchQuarantine(
            logs,
            run_blocking,
            self._is_only_copy,
            self._take_out_of_service,
            self._committed_end,
            self._quarantine_failed,
            self._quarantine_ended,
        )
        # All bounded by the number of replicas.
        self._failed: dict[ReplicaKey, str] = {}
        self._damages: dict[ReplicaKey, Damage] = {}
        self._resigned: dict[ReplicaKey, _Repair] = {}
        self._history: dict[ReplicaKey, _Repair] = {}
        self._found = asyncio.Event()
        self._due = asyncio.Event()

    # -- found ----------------------------------------------------------------------------

    def failed(self, key: ReplicaKey, error: LogError) -> bool:
        """Handles a log that has failed or whose content is damaged.

        Returns True if its disk has only rejected an operation and nothing is lost. Then it stays
        in service."""
        if self._logs.log_of(key) is None:
            return False
        if self._logs.is_out_of_service(key):
            if isinstance(error, LogCorruptError | LogUnreadableError):
                # A check was still running. The repair may otherwise trust what was synced.
                self._logs.take_out_of_service(key, str(error), check_all=True)
            return False
        if isinstance(error, LogCorruptError | LogUnreadableError) and self._is_only_copy(key):
            self._quarantine.begin(key, error)
            return False
        if self._is_rejection(key, error):
            return True
        self._take_out_of_service(key, error)
        return False

    def _is_rejection(self, key: ReplicaKey, error: LogError) -> bool:
        """Returns whether the log is undamaged and no other replica can lead instead."""
        is_sound = isinstance(error, LogStorageError) and not isinstance(
            error, LogFailedError | LogUnreadableError
        )
        return is_sound and not self._others.can_lead(key, self._logs.name_of(key))

    def _is_only_copy(self, key: ReplicaKey) -> bool:
        log = self._logs.log_of(key)
        is_usable = log is not None and log.failed is None and not log.closed
        partition = self._replicas.find(key)
        return is_usable and (
            self._others.are_none(key, self._logs.name_of(key))
            or (partition is not None and leads_alone(partition))
        )

    def _committed_end(self, key: ReplicaKey) -> int:
        """No producer waits at a replica that does not lead."""
        partition = self._replicas.find(key)
        if partition is None or partition.leading is None:
            return MAX_OFFSET
        return partition.high_watermark

    def _quarantine_failed(self, key: ReplicaKey, error: LogError) -> None:
        """Handles damage beyond single batches, and a disk that rejects the change. In the latter
        case the next reader finds the damage again."""
        if self._logs.is_out_of_service(key) or self._logs.log_of(key) is None:
            return
        if isinstance(error, LogUnreadableError) or self._is_rejection(key, error):
            self._replicas.rejected(key, error)
        else:
            self._take_out_of_service(key, error)

    def _quarantine_ended(self, key: ReplicaKey, ranges: Sequence[OffsetRange], why: str) -> None:
        for found in ranges:
            self._batch_damaged(key, found, why)

    def _batch_damaged(self, key: ReplicaKey, found: OffsetRange, why: str) -> None:
        self._state_changes.emit(
            Kind.BATCH_DAMAGED,
            Stage.FAILED,
            cause=Cause.CORRUPT,
            name=self._logs.name_of(key),
            topic_id=key.topic_id,
            broker=self._broker_id,
            broker_epoch=self._replicas.broker_epoch,
            details={**found._asdict(), "why": why},
        )

    async def quarantine_only_copies(self) -> None:
        """Makes damaged batches unreadable that no other replica has."""
        await self._quarantine.run()

    def copy_missing(self, key: ReplicaKey, *, again: bool = False) -> None:
        """Lets a follower copy its unreadable batches from the leader, in place, once in each
        epoch.

        `again`: there may be more of them than before in this epoch."""
        partition = self._replicas.find(key)
        ranges = self._logs.damaged_batches.of(key)
        if partition is None or self._logs.is_out_of_service(key):
            return
        if partition.missing.leader_epoch == partition.leader_epoch and not again:
            return
        if not ranges:
            partition.missing = NOTHING_MISSING
            return
        answered = partial(self._missing_answered, partition)
        partition.missing = MissingBatches(partition.leader_epoch, ranges, answered)

    def _missing_answered(self, partition: Partition, missing: Range, answer: Answer) -> None:
        key, found = partition.key, OffsetRange(*missing)
        if answer is Answer.UNREADABLE:
            self._batch_damaged(key, found, "the leader cannot read it either")
        elif answer is Answer.RESTORED:
            leader = partition.leader_to_follow
            why = (
                f"offsets {found.first_offset} to {found.next_offset - 1}, which could not be read "
                f"here, are copied from the leader, broker {leader}"
            )
            self._emit(
                Kind.REPLICA_REPAIRED,
                Stage.COMPLETED,
                key,
                partition.name,
                first_offset=found.first_offset,
                next_offset=found.next_offset,
                other_broker=leader,
                why=why,
            )
            self._logs.damaged_batches.restored(key, found)

    def _take_out_of_service(self, key: ReplicaKey, error: LogError) -> None:
        partition = self._replicas.find(key)
        leads = partition is not None and partition.leading is not None
        led_epoch = partition.leader_epoch if partition is not None and leads else NO_EPOCH
        self._replicas.suspend(key)
        self._logs.take_out_of_service(
            key, str(error), check_all=not isinstance(error, LogFailedError)
        )
        self._failed[key] = str(error)
        self._found.set()
        cause = Cause.CORRUPT if isinstance(error, LogCorruptError) else Cause.DISK_ERROR
        name = self._logs.name_of(key)
        self._damaged(key, name, cause, str(error), at_start=False, led_epoch=led_epoch)

    def _damaged(
        self,
        key: ReplicaKey,
        name: TopicPartition | None,
        cause: Cause,
        reason: str,
        *,
        at_start: bool,
        led_epoch: int = NO_EPOCH,
    ) -> None:
        self._damages[key] = Damage(cause, reason, self._clock.monotonic_ms(), led_epoch)
        self._emit(Kind.REPLICA_DAMAGED, Stage.COMPLETED, key, name, why=reason, at_start=at_start)

    def damage_of(self, key: ReplicaKey) -> Damage | None:
        """Returns None if no damage is known, or if it is repaired."""
        return self._damages.get(key)

    def _cause_of(self, key: ReplicaKey) -> Cause:
        found = self._damages.get(key)
        if found is not None:
            return found.cause
        return Cause.CORRUPT if self._logs.damaged_batches.of(key) else Cause.NONE

    def _emit(
        self,
        kind: Kind,
        stage: Stage,
        key: ReplicaKey,
        name: TopicPartition | None,
        **details: Detail,
    ) -> None:
        partition = self._replicas.find(key)
        state = partition.state if partition is not None else None
        self._state_changes.emit(
            kind,
            stage,
            cause=self._cause_of(key),
            name=name,
            topic_id=key.topic_id,
            broker=self._broker_id,
            broker_epoch=self._replicas.broker_epoch,
            controller_epoch=state.controller_epoch if state else NO_EPOCH,
            leader_epoch=state.leader_epoch if state else NO_EPOCH,
            revision=partition.revision if partition is not None else NO_REVISION,
            details=details if name else {**details, "partition": key.partition},
        )

    async def resign_found(self, damaged: Sequence[DamagedReplica]) -> None:
        """Lets the replicas resign that a start found, before the broker registers and might be
        elected.

        Raises `StoreRolledBackError`."""
        for replica in damaged:
            unopened = replica.name is not None and self._logs.log_of(replica.key) is None
            cause = Cause.DISK_ERROR if unopened else Cause.CORRUPT
            self._damaged(replica.key, replica.name, cause, replica.reason, at_start=True)
        resigned_at: dict[ReplicaKey, int] = {}
        await self._resignations.resign(
            ((replica.key, replica.name) for replica in damaged),
            resigned_at.__setitem__,
            self._cause_of,
        )
        for replica in damaged:
            missing = self._logs.name_of(replica.key) is None
            if missing or self._logs.log_of(replica.key) is not None:
                # It was checked and cut when it was opened, or will be created empty.
                self._logs.return_to_service(replica.key)
                self._logs.damage_marks.remove(replica.key)
                del self._damages[replica.key]
            else:
                self._schedule(replica.key, resigned_at[replica.key])

    def keep_only_copies(self, damaged: Sequence[DamagedReplica]) -> None:
        """Keeps replicas in service that have no others, and have lost only single batches."""
        for replica in damaged:
            self._logs.return_to_service(replica.key)
            self._logs.damage_marks.remove(replica.key)
            for found in self._logs.damaged_batches.of(replica.key):
                self._batch_damaged(replica.key, found, replica.reason)

    # -- resigned -------------------------------------------------------------------------

    async def resign_failed(self) -> None:
        """Lets failed replicas resign. Those found together resign together, and do not wait for
        earlier ones: an unreadable value of a key may block those without limit."""
        async with asyncio.TaskGroup() as resigning:
            while True:
                await self._found.wait()
                self._found.clear()
                batch, self._failed = self._failed, {}
                resigning.create_task(self._mark_and_resign(batch))

    async def _mark_and_resign(self, batch: dict[ReplicaKey, str]) -> None:
        unmarked = await self._mark(batch)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mark_later(unmarked))
            group.create_task(self._resign(batch))

    async def _mark(self, batch: Mapping[ReplicaKey, str]) -> dict[ReplicaKey, str]:
        """Returns those that the disk did not accept."""
        unmarked: dict[ReplicaKey, str] = {}

        def mark() -> None:
            marks = self._logs.damage_marks
            unmarked.update((k, why) for k, why in batch.items() if not marks.try_write(k, why))

        await self._run_blocking(mark)
        return unmarked

    async def _mark_later(self, unmarked: dict[ReplicaKey, str]) -> None:
        """Marks replicas that are still out of service when the disk accepts it.

        Without a mark, a process that starts after a crash takes for written what a failed sync
        left in memory."""
        failures = 1
        while unmarked:
            failures += 1
            await asyncio.sleep(repair_delay_s(failures))
            tried = {k: why for k, why in unmarked.items() if self._logs.is_out_of_service(k)}
            unmarked = await self._mark(tried) if tried else {}
            for key in tried.keys() - unmarked.keys():
                if not self._logs.is_out_of_service(key):
                    # It was repaired meanwhile.
                    self._logs.damage_marks.remove(key)

    async def _resign(self, batch: Mapping[ReplicaKey, str]) -> None:
        try:
            await self._resignations.resign(
                [(key, self._logs.name_of(key)) for key in batch], self._schedule, self._cause_of
            )
        except StoreRolledBackError as error:
            # They stay out of service. The other replicas need no store.
            _log.critical("resignation_ended", replicas=len(batch), why=str(error))

    def _schedule(self, key: ReplicaKey, resigned_at: int) -> None:
        """Schedules the repair after another failure."""
        now_ms = self._clock.monotonic_ms()
        repair = self._history.setdefault(key, _Repair())
        if now_ms - repair.failed_at_ms > STEADY_MS:
            repair.failures = 0
        repair.failures += 1
        repair.failed_at_ms = now_ms
        repair.resigned_at = max(repair.resigned_at, resigned_at)
        delay = repair_delay_s(repair.failures) * self._rng.uniform(0.5, 1.0)
        repair.due_s = asyncio.get_running_loop().time() + delay
        self._resigned[key] = repair
        self._due.set()

    # -- repaired -------------------------------------------------------------------------

    async def repair_resigned(self) -> None:
        """Repairs one replica after another, to read little from a failing disk."""
        while True:
            self._due.clear()
            now = asyncio.get_running_loop().time()
            due = [key for key, repair in self._resigned.items() if repair.due_s <= now]
            for key in due:
                await self._repair(key)
            if not due:
                await self._wait_for_due(now)

    async def _wait_for_due(self, now: float) -> None:
        coming = min((repair.due_s - now for repair in self._resigned.values()), default=None)
        try:
            async with asyncio.timeout(coming):
                await self._due.wait()
        except TimeoutError:
            pass

    async def _repair(self, key: ReplicaKey) -> None:
        repair = self._resigned.pop(key)
        former = self._logs.log_of(key)
        is_only_copy = self._others.are_none(key, self._logs.name_of(key))
        async with self._quarantine.checking:
            reopening = self._logs.begin_repair(key, is_only_copy=is_only_copy)
        if reopening is None:
            # It was set aside or deleted meanwhile.
            self._history.pop(key, None)
            self._damages.pop(key, None)
            return
        await self._run_blocking(reopening.run)
        try:
            log = self._logs.end_repair(key)
        except LogError as error:
            self._emit(
                Kind.REPLICA_REPAIRED,
                Stage.FAILED,
                key,
                self._logs.name_of(key),
                why=str(error),
                failures=repair.failures,
                fix="check the disk, and move the replica to another broker if it is failing",
            )
            self._schedule(key, repair.resigned_at)
            return
        self._logs.return_to_service(key)
        self._replicas.resume(key, log, repair.resigned_at)
        self.copy_missing(key, again=True)
        # The checkpoints are lowered to the cut before the mark is removed: a crash in between only
        # makes the replica resign again. From here on only the store records that it was not
        # intact: it is in no ISR, or is there as not intact.
        self._checkpoint()
        self._logs.damage_marks.remove(key)
        report = {} if log.recovery is None else log.recovery.as_event()
        recovery = {name: value for name, value in report.items() if value is not None}
        if former is not None:
            recovery["log_end_offset_before"] = former.log_end_offset
        self._emit(
            Kind.REPLICA_REPAIRED,
            Stage.COMPLETED,
            key,
            self._logs.name_of(key),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            **recovery,
        )
        self._damages.pop(key, None)
        if not self._others.can_lead(key, self._logs.name_of(key)):
            for found in self._logs.damaged_batches.of(key):
                self._batch_damaged(key, found, "no other replica can lead")
