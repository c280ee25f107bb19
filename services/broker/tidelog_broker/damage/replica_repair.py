"""Takes a damaged replica out of service, lets it resign, checks and cuts its log, and
puts it back: its leader then repairs it (interleaving 9 of ARCHITECTURE.md).

In this order, because nothing may be cut before the store has it that this replica is not
whole: found → out of service → marked on disk → resigned → cut → back, as a follower that
is in no ISR. Where nobody else can lead it stays without a leader until a recovery elects
it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes.event import NO_REVISION, Cause, Detail, Kind, Stage
from tidelog_broker.background import RunBlocking
from tidelog_broker.damage.batch_sealer import BatchSealer
from tidelog_broker.damage.other_replicas import OtherReplicas
from tidelog_broker.damage.resignations import Resignations
from tidelog_broker.log.errors import LogCorruptError, LogError, LogFailedError
from tidelog_broker.log.log import Log
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.storage.damaged_batches import OffsetRange
from tidelog_broker.storage.damaged_replica import DamagedReplica
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.store import StoreRolledBackError
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

FIRST_RETRY_DELAY_S = 1.0
MAX_RETRY_DELAY_S = 60.0
# A replica that fails again within this time is put back only after a pause.
STEADY_MS = 10 * 60_000

_log = structlog.get_logger()


def repair_delay_s(failures: int) -> float:
    """None after the first failure; then from a second on twice as long each time."""
    if failures <= 1:
        return 0.0
    return min(MAX_RETRY_DELAY_S, FIRST_RETRY_DELAY_S * 2.0 ** min(failures - 2, 10))


class Replicas(Protocol):
    @property
    def broker_epoch(self) -> int: ...

    def find(self, key: ReplicaKey) -> Partition | None: ...

    def suspend(self, key: ReplicaKey) -> None:
        """At once: it neither leads nor follows until it is resumed."""

    def resume(self, key: ReplicaKey, log: Log, resigned_at: int) -> None:
        """What was decided before that revision of its key has no effect any more."""


class Damage(NamedTuple):
    """`since_ms`: of the monotonic clock."""

    cause: Cause
    reason: str
    since_ms: int


@dataclass(slots=True)
class _Repair:
    failures: int = 0
    failed_at_ms: int = 0
    due_s: float = 0.0  # time of the loop
    resigned_at: int = 0  # revision of the partition's key


class ReplicaRepair:
    """`failed` takes note; `resign_failed` and `repair_resigned` run as long as the broker
    does."""

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
        self._sealer = BatchSealer(logs, run_blocking, self._seal_failed, self._seal_ended)
        # All bounded by the number of replicas.
        self._failed: dict[ReplicaKey, str] = {}
        self._damages: dict[ReplicaKey, Damage] = {}
        self._resigned: dict[ReplicaKey, _Repair] = {}
        self._history: dict[ReplicaKey, _Repair] = {}
        self._found = asyncio.Event()
        self._due = asyncio.Event()

    # -- found ----------------------------------------------------------------------------

    def failed(self, key: ReplicaKey, error: LogError) -> None:
        """A replica's log has failed, or what it holds is damaged."""
        if self._logs.is_out(key) or self._logs.log_of(key) is None:
            return
        if isinstance(error, LogCorruptError) and self._is_only_copy(key):
            self._sealer.begin(key, error)
            return
        self._take_out(key, error)

    def _is_only_copy(self, key: ReplicaKey) -> bool:
        log = self._logs.log_of(key)
        is_usable = log is not None and log.failed is None and not log.closed
        return is_usable and self._others.are_none(key, self._logs.name_of(key))

    def _seal_failed(self, key: ReplicaKey, error: LogError) -> None:
        """What is wrong is more than single batches, or the disk does not take it."""
        if not self._logs.is_out(key) and self._logs.log_of(key) is not None:
            self._take_out(key, error)

    def _seal_ended(self, key: ReplicaKey, ranges: Sequence[OffsetRange], why: str) -> None:
        for found in ranges:
            self._batch_damaged(key, found, why)

    def _batch_damaged(self, key: ReplicaKey, found: OffsetRange, why: str) -> None:
        self._state_changes.tell(
            Kind.BATCH_DAMAGED,
            Stage.FAILED,
            cause=Cause.CORRUPT,
            name=self._logs.name_of(key),
            topic_id=key.topic_id,
            broker=self._broker_id,
            broker_epoch=self._replicas.broker_epoch,
            details={**found._asdict(), "why": why},
        )

    async def seal_only_copies(self) -> None:
        """Makes damaged batches unreadable that no other replica has."""
        await self._sealer.run()

    def heal(self, key: ReplicaKey) -> None:
        """Another replica leads now: what is unreadable here is copied from it."""
        ranges = self._logs.damaged_batches.of(key)
        log = self._logs.log_of(key)
        if not ranges or log is None or self._logs.is_out(key):
            return
        first = ranges[0]
        why = (
            f"offsets {first.first_offset} to {first.next_offset - 1} are unreadable here; they "
            "are copied from the leader"
        )
        self._take_out(key, LogCorruptError(log.directory, 0, why))

    def _take_out(self, key: ReplicaKey, error: LogError) -> None:
        self._replicas.suspend(key)
        self._logs.take_out(key, str(error), check_all=not isinstance(error, LogFailedError))
        self._failed[key] = str(error)
        self._found.set()
        cause = Cause.CORRUPT if isinstance(error, LogCorruptError) else Cause.DISK_ERROR
        self._damaged(key, self._logs.name_of(key), cause, str(error), at_start=False)

    def _damaged(
        self,
        key: ReplicaKey,
        name: TopicPartition | None,
        cause: Cause,
        reason: str,
        *,
        at_start: bool,
    ) -> None:
        self._damages[key] = Damage(cause, reason, self._clock.monotonic_ms())
        self._tell(Kind.REPLICA_DAMAGED, Stage.COMPLETED, key, name, why=reason, at_start=at_start)

    def damage_of(self, key: ReplicaKey) -> Damage | None:
        """None: it is not known to be damaged, or repaired."""
        return self._damages.get(key)

    def _cause_of(self, key: ReplicaKey) -> Cause:
        found = self._damages.get(key)
        return found.cause if found is not None else Cause.NONE

    def _tell(
        self,
        kind: Kind,
        stage: Stage,
        key: ReplicaKey,
        name: TopicPartition | None,
        **details: Detail,
    ) -> None:
        partition = self._replicas.find(key)
        state = partition.state if partition is not None else None
        self._state_changes.tell(
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
        """What the start has found, before the broker registers: from then on it might be
        elected. Raises `StoreRolledBackError`."""
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
        await self._cut_damage([replica.key for replica in damaged])
        for replica in damaged:
            missing = self._logs.name_of(replica.key) is None
            if missing or self._logs.log_of(replica.key) is not None:
                # Checked and cut when it was opened, or to be created empty.
                self._logs.back(replica.key)
                self._logs.unmark(replica.key)
                del self._damages[replica.key]
            else:
                self._schedule(replica.key, resigned_at[replica.key])

    def keep_only_copies(self, damaged: Sequence[DamagedReplica]) -> None:
        """Replicas without others, which lost single batches and nothing else: they continue."""
        for replica in damaged:
            self._logs.back(replica.key)
            self._logs.unmark(replica.key)
            for found in self._logs.damaged_batches.of(replica.key):
                self._batch_damaged(replica.key, found, replica.reason)

    async def _cut_damage(self, keys: Sequence[ReplicaKey]) -> None:
        """Of replicas that have resigned and that others can lead: the leader sends again what
        is unreadable here. Where no other can, the bytes behind it stay."""
        cut = [key for key in keys if self._others.can_lead(key, self._logs.name_of(key))]

        def run() -> None:
            for key in cut:
                try:
                    self._logs.cut_damage(key)
                except LogError as error:
                    _log.warning("damage_not_cut", topic_id=key.topic_id, why=str(error))

        await self._run_blocking(run)

    # -- resigned -------------------------------------------------------------------------

    async def resign_failed(self) -> None:
        """What is found at once resigns together, and waits for none that was found before:
        a value that cannot be read may hold that one up for ever."""
        async with asyncio.TaskGroup() as resigning:
            while True:
                await self._found.wait()
                self._found.clear()
                batch, self._failed = self._failed, {}
                resigning.create_task(self._mark_and_resign(batch))

    async def _mark_and_resign(self, batch: dict[ReplicaKey, str]) -> None:
        def mark() -> None:
            for key, reason in batch.items():
                self._logs.mark(key, reason)

        await self._run_blocking(mark)
        try:
            await self._resignations.resign(
                [(key, self._logs.name_of(key)) for key in batch], self._schedule, self._cause_of
            )
        except StoreRolledBackError as error:
            # They stay out of service; the other replicas need no store.
            _log.critical("resignation_ended", replicas=len(batch), why=str(error))

    def _schedule(self, key: ReplicaKey, resigned_at: int) -> None:
        """After another failure."""
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
        """One after another: a disk that fails is not read by many at once."""
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
        reopening = self._logs.begin_repair(key)
        if reopening is None:
            # Set aside or deleted meanwhile.
            self._history.pop(key, None)
            self._damages.pop(key, None)
            return
        await self._run_blocking(reopening.run)
        try:
            log = self._logs.end_repair(key)
        except LogError as error:
            self._tell(
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
        await self._cut_damage([key])
        self._logs.back(key)
        self._replicas.resume(key, log, repair.resigned_at)
        # The checkpoints name no offset beyond the cut before the mark goes: a crash in
        # between would only let it resign once more. From here on the store alone keeps
        # that it was not whole: it is in no ISR, or stands there in no life.
        self._checkpoint()
        self._logs.unmark(key)
        report = {} if log.recovery is None else log.recovery.as_event()
        recovery = {name: value for name, value in report.items() if value is not None}
        if former is not None:
            recovery["log_end_offset_before"] = former.log_end_offset
        self._tell(
            Kind.REPLICA_REPAIRED,
            Stage.COMPLETED,
            key,
            self._logs.name_of(key),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            **recovery,
        )
        self._damages.pop(key, None)
        for found in self._logs.damaged_batches.of(key):
            self._batch_damaged(key, found, "no other replica can lead")
