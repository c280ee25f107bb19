"""Every replica of this broker: carries out the controller's commands, and finds the
partition that a request is about.

Commands are taken one at a time; between two of their partitions the loop gets its turn,
so that a large command does not hold up the data plane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import structlog

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_broker.log.errors import LogError, OutOfServiceError
from tidelog_broker.log.log import Log
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.partition.listener import PartitionListener
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replicas.command_fencing import fence_command
from tidelog_broker.replicas.stopped_replicas import StoppedReplicas
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock
from tidelog_runtime.replica_control import (
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    LeaderAddress,
    LeaderAndIsrCommand,
    PartitionCommand,
    PartitionResult,
    ReplicaSummary,
    StopPartition,
    StopReplicaCommand,
)
from tidelog_runtime.topic_config import TopicConfig

_log = structlog.get_logger()


class Followers(Protocol):
    """Starts and stops the fetching of partitions."""

    def update(self, partitions: Iterable[Partition]) -> None:
        """Each of these may have a new leader, or none to follow any more."""

    def forget(self, partition: Partition) -> None: ...


class ReplicaManager:
    def __init__(
        self,
        broker_id: int,
        logs: LogDirectory,
        cache: MetadataCache,
        clock: Clock,
        listener: PartitionListener,
        followers: Callable[[ReplicaManager], Followers],
    ) -> None:
        self.broker_id = broker_id
        # 0: no command counts yet. Newer ones in commands are taken.
        self.broker_epoch = 0
        self.has_full_state = asyncio.Event()
        self.leader_addresses: dict[int, LeaderAddress] = {}
        self._logs = logs
        self._cache = cache
        self._clock = clock
        self._listener = listener
        self._followers = followers(self)
        self._by_name: dict[TopicPartition, Partition] = {}
        self._by_key: dict[ReplicaKey, Partition] = {}
        self._configs: dict[TopicPartition, TopicConfig] = {}
        self._stopped = StoppedReplicas()
        self._controller_epoch = 0
        self._command = asyncio.Lock()
        self.replica_lag_max_bytes: int | None = None
        # Told of a log that has failed, or of damage in one; it suspends the replica.
        self.on_failure: Callable[[ReplicaKey, LogError], None] = _say_failed

    # -- the controller's commands ---------------------------------------------------

    async def leader_and_isr(self, command: LeaderAndIsrCommand) -> CommandResult:
        async with self._command:
            refusal = self._refusal(command.controller_epoch, command.broker_epoch)
            if refusal is not None:
                return CommandResult(error=refusal)
            for broker_id, address in command.leaders.items():
                known = self.leader_addresses.get(broker_id)
                if known is None or known.broker_epoch <= address.broker_epoch:
                    self.leader_addresses[broker_id] = address
            results = []
            news: list[Partition] = []
            try:
                for wanted in command.partitions:
                    result, partition = self._take(wanted, command.broker_epoch)
                    results.append(result)
                    if partition is not None:
                        news.append(partition)
                    await asyncio.sleep(0)
            finally:
                # Also when the controller hung up half-way: what was taken is no news to
                # the command that repeats this one (KAFKA-9307).
                self._followers.update(news)
            if command.full_state:
                self._set_strays_aside(command)
                self.has_full_state.set()
            if news or command.full_state:
                self._say_taken(command, news)
            return CommandResult(partitions=results)

    async def stop_replica(self, command: StopReplicaCommand) -> CommandResult:
        async with self._command:
            refusal = self._refusal(command.controller_epoch, command.broker_epoch)
            if refusal is not None:
                return CommandResult(error=refusal)
            results = []
            for wanted in command.partitions:
                results.append(self._stop(wanted))
                await asyncio.sleep(0)
            return CommandResult(partitions=results)

    async def describe_replicas(self, command: DescribeReplicasCommand) -> DescribeReplicasResult:
        """How far logs reach. Not in the middle of a command, which may be about them."""
        async with self._command:
            refusal = self._refusal(command.controller_epoch, command.broker_epoch)
            if refusal is not None:
                return DescribeReplicasResult(error=refusal)
            replicas = []
            for topic_id, number in command.partitions:
                partition = self._by_key.get(ReplicaKey(topic_id, number))
                if partition is not None and partition.in_service:
                    replicas.append(_summary(partition))
            return DescribeReplicasResult(replicas=replicas)

    def _refusal(self, controller_epoch: int, broker_epoch: int) -> TidelogError | None:
        code = fence_command(
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            known_controller_epoch=self._controller_epoch,
            known_broker_epoch=self.broker_epoch,
        )
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            return TidelogError(
                code,
                f"broker {self.broker_id} has taken commands of controller epoch "
                f"{self._controller_epoch}; {controller_epoch} is older",
            )
        if code is not None:
            lives = f"lives in broker epoch {self.broker_epoch}" if self.broker_epoch else "starts"
            return TidelogError(
                code,
                f"broker {self.broker_id} {lives}; the command is for its former life "
                f"{broker_epoch}",
            )
        self._controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        return None

    def _take(
        self, wanted: PartitionCommand, broker_epoch: int
    ) -> tuple[PartitionResult, Partition | None]:
        """Brings one replica into the wanted state; the partition is returned if that was
        news. Recorded only when it is done, so that a repeat after a failure counts
        (KAFKA-9307)."""
        topic_id, number = wanted.state.topic_id, wanted.partition.partition
        if self._stopped.is_late(ReplicaKey(topic_id, number), wanted.revision):
            return PartitionResult(topic_id, number, wanted.revision, None), None
        try:
            partition = self._replica(wanted)
            if partition is None:
                return PartitionResult(topic_id, number, wanted.revision, None), None
            synced = self._configs[wanted.partition].durability == "synced"
            durability_changed = partition.set_synced(synced)
            news = partition.take(
                wanted.state,
                wanted.revision,
                broker_epoch=broker_epoch,
                now_ms=self._clock.monotonic_ms(),
            )
        except TidelogError as error:
            _log.error("replica_refused", partition=str(wanted.partition), why=str(error))
            return PartitionResult(topic_id, number, 0, error), None
        except LogError as error:
            if not isinstance(error, OutOfServiceError):  # whose failure has been said
                _log.error("replica_failed", partition=str(wanted.partition), why=str(error))
            failure = TidelogError(ErrorCode.STORAGE_ERROR, str(error))
            return PartitionResult(topic_id, number, 0, failure), None
        result = PartitionResult(topic_id, number, partition.revision, None)
        return result, partition if news or durability_changed else None

    def _replica(self, wanted: PartitionCommand) -> Partition | None:
        """The replica that a command is about, created where it is not there. None: the
        command is older than the topic that has the name here now."""
        config = TopicConfig.parse(wanted.config)
        present = self._by_name.get(wanted.partition)
        if present is not None and present.topic_id != wanted.state.topic_id:
            if wanted.revision <= present.revision:
                return None
            # The topic was deleted and created again while nobody told us.
            self._remove(present, delete=False)
            present = None
        key = ReplicaKey(wanted.state.topic_id, wanted.partition.partition)
        log = self._logs.open_replica(wanted.partition, key, config)
        self._configs[wanted.partition] = config
        if present is not None:
            return present
        partition = Partition(
            wanted.partition,
            wanted.state.topic_id,
            self.broker_id,
            log,
            high_watermark=self._logs.high_watermark(key),
            listener=self._listener,
        )
        partition.lag_max_bytes = self.replica_lag_max_bytes
        self._by_name[wanted.partition] = partition
        self._by_key[key] = partition
        self._stopped.started(key)
        return partition

    def _stop(self, wanted: StopPartition) -> PartitionResult:
        """Stops one replica. A command about another topic id, or one that is not newer
        than what this replica knows, is acknowledged and has no effect (KIP-570;
        interleaving 7)."""
        key = ReplicaKey(wanted.topic_id, wanted.partition.partition)
        partition = self._by_key.get(key)
        try:
            if partition is None:
                if not self.has_full_state.is_set():
                    return PartitionResult(*key, 0, self._too_early(wanted))
                if wanted.delete:
                    self._logs.delete(key)
                else:
                    # Still there if it was under repair when the command first came.
                    self._logs.set_aside(key)
                self._stopped.stopped(key, wanted.revision)
            elif wanted.revision > partition.revision:
                self._remove(partition, delete=wanted.delete)
                self._stopped.stopped(key, wanted.revision)
            else:
                _log.debug(
                    "stop_replica_without_effect",
                    partition=str(wanted.partition),
                    revision=wanted.revision,
                    known=partition.revision,
                )
        except LogError as error:
            failure = TidelogError(ErrorCode.STORAGE_ERROR, str(error))
            return PartitionResult(wanted.topic_id, wanted.partition.partition, 0, failure)
        return PartitionResult(wanted.topic_id, wanted.partition.partition, wanted.revision, None)

    def _too_early(self, wanted: StopPartition) -> TidelogError:
        """Before the full state nothing tells a late command from a new one: the replica
        on disk may be one that was assigned again since."""
        return TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"broker {self.broker_id} does not know its replicas yet and stops none, not "
            f"{wanted.partition}; send it its full state first",
        )

    def _remove(self, partition: Partition, *, delete: bool) -> None:
        partition.stop_leading()
        self._followers.forget(partition)
        key = ReplicaKey(partition.topic_id, partition.name.partition)
        self._by_key.pop(key, None)
        if self._by_name.get(partition.name) is partition:
            del self._by_name[partition.name]
            del self._configs[partition.name]
        if delete:
            self._logs.delete(key)
        else:
            self._logs.set_aside(key)
        _log.info("replica_stopped", partition=str(partition.name), deleted=delete)

    def _set_strays_aside(self, command: LeaderAndIsrCommand) -> None:
        """A full state names every replica of this broker; what it does not name, and what
        nothing newer told us of, is no longer assigned here."""
        named = {ReplicaKey(p.state.topic_id, p.partition.partition) for p in command.partitions}
        for key in [k for k in self._logs.keys() if k not in named]:  # noqa: SIM118
            partition = self._by_key.get(key)
            try:
                if partition is None:
                    _log.warning("stray_set_aside", topic_id=key.topic_id, partition=key.partition)
                    self._logs.set_aside(key)
                    self._stopped.stopped(key, command.store_revision)
                elif partition.revision <= command.store_revision:
                    self._remove(partition, delete=False)
                    self._stopped.stopped(key, command.store_revision)
            except LogError as error:
                # It stays where it is, unused; that must not keep the others from serving.
                _log.error("stray_stays", topic_id=key.topic_id, why=str(error))

    def _say_taken(self, command: LeaderAndIsrCommand, news: list[Partition]) -> None:
        _log.info(
            "leader_and_isr_taken",
            controller_epoch=command.controller_epoch,
            full_state=command.full_state,
            partitions=len(command.partitions),
            news=len(news),
            leading=sum(1 for p in news if p.leading),
        )

    # -- finding a partition ----------------------------------------------------------

    def led(self) -> Iterator[Partition]:
        return (p for p in self._by_name.values() if p.leading is not None)

    def all(self) -> Iterable[Partition]:
        return self._by_name.values()

    def replica(self, key: ReplicaKey) -> Partition:
        """For followers. Raises UNKNOWN_TOPIC_ID."""
        partition = self._by_key.get(key)
        if partition is None:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"broker {self.broker_id} has no replica of partition {key.partition} of the "
                f"topic with id {key.topic_id}",
            )
        return partition

    def partition(self, name: TopicPartition, topic_id: str = "") -> Partition:
        """For clients. Raises NOT_LEADER with a hint, or says what does not exist."""
        partition = self._by_name.get(name)
        if partition is not None and topic_id and partition.topic_id != topic_id:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {name.topic!r} has the id {partition.topic_id}, not {topic_id}: it was "
                "deleted and created again",
            )
        if partition is None or partition.leading is None:
            raise self.not_led_here(name, partition)
        return partition

    def not_led_here(self, name: TopicPartition, partition: Partition | None) -> TidelogError:
        """Why a client's request cannot be served here, and where it can."""
        topic = self._cache.topics.get(name.topic)
        if topic is None and partition is None:
            return TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name.topic!r} does not exist; create it first",
            )
        if topic is not None and not 0 <= name.partition < topic.partitions:
            return TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name.topic!r} has partitions 0 to {topic.partitions - 1}, "
                f"not {name.partition}",
            )
        hint = self._cache.leader_hint(name)
        if partition is not None and not partition.in_service:
            return TidelogError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"broker {self.broker_id} has found its replica of {name} damaged, and leaves it "
                "to another to lead; try again with fresh metadata",
            )
        if hint is None:
            return TidelogError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"{name} has no leader now; try again with fresh metadata",
            )
        if hint.broker_id == self.broker_id:
            return TidelogError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"broker {self.broker_id} is about to lead {name}; try again",
            )
        return TidelogError(
            ErrorCode.NOT_LEADER,
            f"broker {self.broker_id} does not lead {name}; broker {hint.broker_id} at "
            f"{hint.address} does",
            hint,
        )

    def max_batch_bytes(self, partition: Partition) -> int:
        return self._configs[partition.name].max_batch_bytes

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Where a leader is, by the newest word of controller or store."""
        live = self._cache.brokers.get(broker_id)
        told = self.leader_addresses.get(broker_id)
        if live is not None and (told is None or live.broker_epoch >= told.broker_epoch):
            return live.registration.address, live.broker_epoch
        return (told.address, told.broker_epoch) if told is not None else None

    def replica_failed(
        self, partition: Partition, error: LogError, what: str = "written"
    ) -> TidelogError:
        """A log that could not be `what`; returns what a client is to be told."""
        if error.is_passing:
            _log.error("disk_refused", partition=str(partition.name), why=str(error))
            return TidelogError(
                ErrorCode.STORAGE_ERROR, f"{partition.name} cannot be {what}: {error}"
            )
        self.on_failure(ReplicaKey(partition.topic_id, partition.name.partition), error)
        return self.not_led_here(partition.name, partition)

    def log_failed(self, key: ReplicaKey, error: LogError) -> None:
        """The same of a log that may have no partition yet."""
        if error.is_passing:
            _log.error("disk_refused", topic_id=key.topic_id, why=str(error))
        else:
            self.on_failure(key, error)

    def suspend(self, key: ReplicaKey) -> None:
        partition = self._by_key.get(key)
        if partition is not None:
            partition.suspend()
            self._followers.forget(partition)

    def resume(self, key: ReplicaKey, log: Log, resigned_at: int) -> None:
        partition = self._by_key.get(key)
        if partition is not None:
            partition.resume(log, resigned_at=resigned_at)
            self._followers.update([partition])
        else:
            self._stopped.stopped(key, resigned_at - 1)

    def observed(self, names: Iterable[TopicPartition]) -> None:
        """The watch brought news of these partitions."""
        for name in names:
            partition = self._by_name.get(name)
            if partition is None or partition.leading is None:
                continue
            versioned = self._cache.state_of(name)
            if versioned is None:
                partition.observed(None, self._cache.revision)
            elif versioned.state.topic_id == partition.topic_id:
                partition.observed(versioned.state, versioned.revision)
            else:
                # Another topic has the name now.
                partition.observed(None, versioned.revision)

    def leaders_followed(self) -> Mapping[int, int]:
        """How many partitions follow each leader."""
        counts: dict[int, int] = {}
        for partition in self._by_name.values():
            leader = partition.leader_to_follow
            if leader != NO_LEADER:
                counts[leader] = counts.get(leader, 0) + 1
        return counts


def _say_failed(key: ReplicaKey, error: LogError) -> None:
    _log.error("replica_failed", topic_id=key.topic_id, partition=key.partition, why=str(error))


def _summary(partition: Partition) -> ReplicaSummary:
    log = partition.log
    return ReplicaSummary(
        partition.topic_id,
        partition.name.partition,
        partition.revision,
        log.log_start_offset,
        log.log_end_offset,
        tuple((epoch, start) for epoch, start in log.leader_epochs),
    )
