"""The replicas of this broker: creates and removes them, and takes them out of service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.core.partition.listener import PartitionListener
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError, LogStorageError
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replicas.disk_events import DiskEvents
from tidelog_broker.replicas.replica_lookup import ReplicaLookup
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock
from tidelog_runtime.replica_control import PartitionCommand
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class Followers(Protocol):
    """Starts and stops the fetching of partitions."""

    def update(self, partitions: Iterable[Partition]) -> None:
        """Called with partitions that may have a new leader, or no leader to follow."""

    def forget(self, partition: Partition) -> None: ...


class ReplicaManager(ReplicaLookup):
    """The replicas of this broker, their logs and their fetching.

    - `followers`: called with this manager; returns what fetches its replicas.
    - `on_failure`: handles a failed or damaged log. Returns True if the disk has rejected something
      and nothing is lost: then the replica stays in service. None: the replica is suspended.
    - `on_clock`: called with the id of another broker and the time that its clock showed.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogDirectory,
        cache: MetadataCache,
        clock: Clock,
        listener: PartitionListener,
        followers: Callable[[ReplicaManager], Followers],
        state_changes: StateChangeLog,
        *,
        replica_lag_max_bytes: int | None = None,
        on_failure: Callable[[ReplicaKey, LogError], bool] | None = None,
        on_clock: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        super().__init__(broker_id, cache)
        self.state_changes = state_changes
        # Replicas whose disk rejects operations now.
        self.disk = DiskEvents(logs, clock, self, state_changes)
        # 0: no command is accepted yet. A newer epoch in a command is adopted.
        self.broker_epoch = 0
        self.controller_epoch = 0
        self.has_full_state = asyncio.Event()
        self.followers = followers(self)
        self.note_peer_clock = on_clock
        self._logs = logs
        self._clock = clock
        self._listener = listener
        self._replica_lag_max_bytes = replica_lag_max_bytes
        self._on_failure = on_failure or self._suspend_failed

    # -- creation and removal ----------------------------------------------------------

    def open_replica(
        self, command: PartitionCommand, key: ReplicaKey, failure: Exception | None
    ) -> tuple[Partition, bool]:
        """Returns the replica of a command, and whether its log is new.

        Creates what is missing. `failure`: why the log could not be opened before.
        """
        config = self._configs.take(
            command.partition, key.topic_id, command.config, command.config_revision
        )
        is_new = self._logs.is_new(key)
        try:
            if failure is not None:
                raise failure
            log = self._logs.open_replica(command.partition, key, config)
        except LogStorageError as error:
            self.disk.not_opened(key, command.partition, error)
            raise
        self.disk.opened(key)
        partition = self.find(key)
        if partition is None:
            partition = Partition(
                command.partition,
                key.topic_id,
                self.broker_id,
                log,
                high_watermark=self._logs.high_watermark(key),
                listener=self._listener,
                lag_max_bytes=self._replica_lag_max_bytes,
            )
            self.register(partition)
        return partition, is_new

    def is_synced(self, name: TopicPartition) -> bool:
        return self._configs.of(name).durability == "synced"

    def is_valid_config(self, topic: str, config: Mapping[str, str]) -> bool:
        return self._configs.is_valid(topic, config)

    def remove(self, partition: Partition, *, delete: bool, since_ms: int | None = None) -> None:
        """Deletes the log, or sets it aside as a stray `since_ms`."""
        partition.stop_leading()
        self.followers.forget(partition)
        if self.unregister(partition):
            self._configs.forget(partition.name)
        key = partition.key
        if delete:
            self._logs.delete(key)
        else:
            self._logs.set_aside(key, since_ms)
        self.disk.forget(key)

    # -- failures ----------------------------------------------------------------------

    def replica_failed(
        self, partition: Partition, error: LogError, what: str = "written"
    ) -> TidelogError:
        """Handles a log that could not be `what`. Returns the error for the client."""
        key = partition.key
        if error.is_transient or self._on_failure(key, error):
            self.disk.rejected(key, error, what)
            return TidelogError(
                ErrorCode.STORAGE_ERROR, f"{partition.name} cannot be {what}: {error}"
            )
        if partition.leading is not None:
            # The only copy keeps leading; the damaged batch becomes unreadable in a moment.
            return TidelogError(
                ErrorCode.STORAGE_ERROR, f"{partition.name} is being checked, try again: {error}"
            )
        return self.not_led_here(partition.name, partition)

    def log_failed(self, key: ReplicaKey, error: LogError) -> None:
        """Handles a log that could not be synced, and that may have no partition yet."""
        if error.is_transient or self._on_failure(key, error):
            self.disk.rejected(key, error, "synced")

    def log_unreadable(self, key: ReplicaKey, error: LogError) -> None:
        """Handles a log that could not be read, and that may have no partition yet."""
        if error.is_transient or self._on_failure(key, error):
            self.disk.rejected(key, error, "read")

    def rejected(self, key: ReplicaKey, error: LogError) -> None:
        """Notes that the disk rejected the write of a repair; nothing is lost."""
        self.disk.rejected(key, error, "written")

    def _suspend_failed(self, key: ReplicaKey, _: LogError) -> bool:
        self.suspend(key)
        return False

    def suspend(self, key: ReplicaKey) -> None:
        partition = self._by_key.get(key)
        if partition is not None:
            partition.suspend()
            self.followers.forget(partition)

    def resume(self, key: ReplicaKey, log: Log, resigned_at: int) -> None:
        partition = self._by_key.get(key)
        if partition is not None:
            partition.resume(log, resigned_at=resigned_at)
            self.followers.update([partition])
        else:
            self.stopped.stopped(key, resigned_at - 1)

    # -- news of the metadata ----------------------------------------------------------

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def observed(self, names: Iterable[TopicPartition]) -> None:
        """Called when the watch has news of these partitions."""
        now_ms = self._clock.monotonic_ms()
        for name in names:
            partition = self._by_name.get(name)
            if partition is None or partition.leading is None:
                continue
            versioned = self._cache.state_of(name)
            if versioned is None:
                partition.observed(None, self._cache.revision, now_ms)
            elif versioned.state.topic_id == partition.topic_id:
                partition.observed(versioned.state, versioned.revision, now_ms)
            else:
                # Another topic has the name now.
                partition.observed(None, versioned.revision, now_ms)

    def configured(self, topics: Iterable[str]) -> None:
        """Called when the watch has news of these topics. A replica that is out of service takes
        them with the command that brings it back."""
        for name, config in self._configs.seen(topics, self._is_in_service):
            partition = self._by_name[name]
            self._logs.configure(partition.key, config)
            if partition.set_synced(config.durability == "synced"):
                self.followers.update([partition])

    def _is_in_service(self, name: TopicPartition) -> bool:
        partition = self._by_name.get(name)
        return partition is not None and partition.in_service
