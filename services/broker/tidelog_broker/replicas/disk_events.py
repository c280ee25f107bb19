"""Emits when the disk of a replica begins to reject operations, and when it has recovered."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Protocol

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes.event import NO_REVISION, Cause, Change, Detail, Kind, Stage
from tidelog_broker.core.disk_rejections import (
    STEADY_AFTER_HANG_MS,
    STEADY_MS,
    DiskRejection,
    DiskRejections,
    Unopened,
)
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log_errors import (
    LogCorruptError,
    LogError,
    OutOfServiceError,
    SyncHangsError,
)
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


def cause_of(error: LogError) -> Cause:
    if isinstance(error, (LogCorruptError, OutOfServiceError)):
        return Cause.CORRUPT
    return Cause.DISK_FULL if error.is_full else Cause.DISK_ERROR


class Replicas(Protocol):
    """The replicas of one broker."""

    broker_id: int
    broker_epoch: int

    def find(self, key: ReplicaKey) -> Partition | None: ...


class DiskEvents:
    """Events of disks that reject operations.

    False while no disk does, so that the path of a record costs one check.
    """

    def __init__(
        self, logs: LogDirectory, clock: Clock, replicas: Replicas, state_changes: StateChangeLog
    ) -> None:
        self._rejections = DiskRejections()
        # Replicas that could not be opened, as long as a controller assigns them to this broker.
        self._unopened: dict[ReplicaKey, Unopened] = {}
        self._logs = logs
        self._clock = clock
        self._replicas = replicas
        self._state_changes = state_changes

    def __bool__(self) -> bool:
        return bool(self._rejections)

    def rejected(self, key: ReplicaKey, error: LogError, what: str) -> None:
        """Notes that `what` failed: "written", "synced" or "read". Emits the first failure only."""
        now_ms = self._clock.monotonic_ms()
        steady_ms = STEADY_AFTER_HANG_MS if isinstance(error, SyncHangsError) else STEADY_MS
        is_news = self._rejections.rejected(
            key, cause_of(error), what, str(error), now_ms, steady_ms
        )
        rejection = self._rejections.of(key)
        assert rejection is not None
        partition = self._replicas.find(key)
        if partition is not None and partition.leading is not None:
            rejection.led_epoch = partition.leader_epoch
        if not is_news:
            return
        subject = f"disk-{key.topic_id}-{key.partition}"
        rejection.change = self._state_changes.condition_change(subject, rejection.cause)
        self._emit(Kind.DISK_REFUSED, key, rejection.change, what=what, why=str(error))

    def not_opened(self, key: ReplicaKey, name: TopicPartition, error: LogError) -> None:
        known = self._unopened.get(key)
        since_ms = self._clock.monotonic_ms() if known is None else known.since_ms
        self._unopened[key] = Unopened(name, cause_of(error), str(error), since_ms)

    def opened(self, key: ReplicaKey) -> None:
        """Called when the log was opened, or the replica is no longer assigned here."""
        self._unopened.pop(key, None)

    def keep_unopened(self, keys: Container[ReplicaKey]) -> None:
        """Forgets all others: they are no longer assigned here."""
        for key in [key for key in self._unopened if key not in keys]:
            del self._unopened[key]

    def unopened(self) -> Mapping[ReplicaKey, Unopened]:
        return self._unopened

    def took(self, key: ReplicaKey, what: str) -> None:
        if self._rejections:
            self._rejections.took(key, what, self._clock.monotonic_ms())

    def judge(self) -> None:
        """Emits which disks have recovered. Called periodically."""
        now_ms = self._clock.monotonic_ms()
        for key, rejection in self._rejections.over(now_ms):
            for_ms = now_ms - rejection.since_ms
            self._emit(
                Kind.DISK_RECOVERED, key, rejection.change, what=rejection.what, refused_ms=for_ms
            )

    def forget(self, key: ReplicaKey) -> None:
        self._rejections.forget(key)
        self._unopened.pop(key, None)

    def of(self, key: ReplicaKey) -> DiskRejection | None:
        return self._rejections.of(key)

    def standing(self) -> Iterator[tuple[ReplicaKey, DiskRejection]]:
        """Yields the replicas whose disk rejects operations now."""
        return self._rejections.standing()

    def _emit(self, kind: Kind, key: ReplicaKey, change: Change, **details: Detail) -> None:
        partition = self._replicas.find(key)
        state = partition.state if partition is not None else None
        self._state_changes.emit(
            kind,
            Stage.COMPLETED,
            change=change,
            name=self._logs.name_of(key),
            topic_id=key.topic_id,
            broker=self._replicas.broker_id,
            broker_epoch=self._replicas.broker_epoch,
            controller_epoch=state.controller_epoch if state else NO_EPOCH,
            leader_epoch=state.leader_epoch if state else NO_EPOCH,
            revision=partition.revision if partition is not None else NO_REVISION,
            details=details,
        )
