"""All replicas of this broker: carries out the controller's commands, and finds partitions.

Commands run one at a time. The event loop runs after every few partitions, so that a large command
does not delay the data plane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause, Kind, Stage, set_aside
from tidelog_broker.background import RunBlocking
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError, LogStorageError
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.partition.listener import PartitionListener
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.producer_state import fenced
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replicas.batch_limits import BatchLimits
from tidelog_broker.replicas.command_events import (
    CommandEvents,
    CommandRefusal,
    Epochs,
    Part,
    role_part,
    stop_part,
)
from tidelog_broker.replicas.command_fencing import fence_command
from tidelog_broker.replicas.command_refusals import (
    for_former_life,
    of_older_controller,
    stops_nothing_yet,
)
from tidelog_broker.replicas.disk_events import DiskEvents, cause_of
from tidelog_broker.replicas.followers import Followers
from tidelog_broker.replicas.log_opener import NO_FAILURES, OPENED_AT_ONCE, LogOpener
from tidelog_broker.replicas.new_replicas import new_replicas
from tidelog_broker.replicas.not_led_here import not_led_here
from tidelog_broker.replicas.replica_summary import key_of, summary_of
from tidelog_broker.replicas.stopped_replicas import StoppedReplicas
from tidelog_broker.replicas.topic_configs import TopicConfigs
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock
from tidelog_runtime.command_traces import shared_trace_id
from tidelog_runtime.cooperative import map_yielding
from tidelog_runtime.replica_control import (
    Command,
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
    newest_revision,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

# Cost after which the event loop runs; a new replica costs four times as much as another.
COST_PER_TURN = 32
CREATION_COST = 4
# Partitions that are passed to the fetchers at once. Only a full state has more.
FOLLOWED_AT_ONCE = 2_000


class ReplicaManager:
    def __init__(
        self,
        broker_id: int,
        logs: LogDirectory,
        cache: MetadataCache,
        clock: Clock,
        listener: PartitionListener,
        followers: Callable[[ReplicaManager], Followers],
        state_changes: StateChangeLog,
        run_blocking: RunBlocking,
    ) -> None:
        self.broker_id = broker_id
        self.state_changes = state_changes
        # Replicas whose disk rejects operations now.
        self.disk = DiskEvents(logs, clock, self, state_changes)
        # 0: no command is accepted yet. A newer epoch in a command is adopted.
        self.broker_epoch = 0
        self.has_full_state = asyncio.Event()
        self.leader_addresses: dict[int, LeaderAddress] = {}
        self._logs = logs
        self._opener = LogOpener(logs, run_blocking, broker_id)
        self._cache = cache
        self._clock = clock
        self._listener = listener
        self._followers = followers(self)
        self._by_name: dict[TopicPartition, Partition] = {}
        self._by_key: dict[ReplicaKey, Partition] = {}
        self._configs = TopicConfigs(cache)
        self._stopped = StoppedReplicas()
        self._new_replicas = partial(new_replicas, self._by_name, self._stopped, self._configs)
        self._events = CommandEvents(state_changes, broker_id)
        self.controller_epoch = 0
        self._command = asyncio.Lock()
        self.replica_lag_max_bytes: int | None = None
        # Handles a failed or damaged log. Returns True if the disk has rejected something and
        # nothing is lost: then the replica stays in service.
        self.on_failure: Callable[[ReplicaKey, LogError], bool] = self._suspend_failed
        # Called when a replica has another leader to follow.
        self.on_following: Callable[[ReplicaKey], None] = lambda _: None
        # Called with the revision on which an accepted command rests, before it has any effect.
        self.on_store_revision: Callable[[int], None] = lambda _: None
        # Called with the number of partitions taken from a full state, and with their total.
        self.on_full_state: Callable[[int, int], None] = lambda *_: None
        # Called with the id of another broker and the time that its clock showed.
        self.on_clock: Callable[[int, int], None] = lambda *_: None

    # -- the controller's commands ---------------------------------------------------

    async def leader_and_isr(self, command: LeaderAndIsrCommand) -> CommandResult:
        async with self._command:
            refusal = self._refusal("leader_and_isr", command)
            if refusal is not None:
                return CommandResult(error=refusal)
            if command.full_state:
                self._events.full_state(Stage.RECEIVED, command)
            for broker_id, address in command.leaders.items():
                known = self.leader_addresses.get(broker_id)
                if known is None or known.broker_epoch <= address.broker_epoch:
                    self.leader_addresses[broker_id] = address
            results = []
            news: list[Partition] = []
            cost = 0
            try:
                failed = NO_FAILURES
                for position, wanted in enumerate(command.partitions):
                    if position % OPENED_AT_ONCE == 0:
                        some = command.partitions[position : position + OPENED_AT_ONCE]
                        failed = await self._opener.open(self._new_replicas(some))
                    cost += 1 if wanted.partition in self._by_name else CREATION_COST
                    result, partition = self._take(wanted, command, failed)
                    results.append(result)
                    if partition is not None:
                        news.append(partition)
                    if command.full_state:
                        self.on_full_state(len(results), len(command.partitions))
                    if len(news) >= FOLLOWED_AT_ONCE:
                        self._followers.update(news)
                        news = []
                    if cost >= COST_PER_TURN:
                        cost = 0
                        await asyncio.sleep(0)
            finally:
                # Also if the controller hung up half-way: what was taken is no news to the command
                # that repeats this one (KAFKA-9307).
                self._followers.update(news)
            if command.full_state:
                await self._set_strays_aside(command)
                self.has_full_state.set()
                self._events.full_state(Stage.COMPLETED, command)
            return CommandResult(partitions=results)

    async def stop_replica(self, command: StopReplicaCommand) -> CommandResult:
        async with self._command:
            refusal = self._refusal("stop_replica", command)
            if refusal is not None:
                return CommandResult(error=refusal)
            results = []
            for wanted in command.partitions:
                results.append(self._stop(wanted, command))
                await asyncio.sleep(0)
            return CommandResult(partitions=results)

    async def describe_replicas(self, command: DescribeReplicasCommand) -> DescribeReplicasResult:
        """Returns how far logs reach. Waits for the running command, which may change them."""
        async with self._command:
            refusal = self._refusal("describe_replicas", command)
            if refusal is not None:
                return DescribeReplicasResult(error=refusal)
            found = await map_yielding(self._summary, command.partitions)
            return DescribeReplicasResult(replicas=[r for r in found if r is not None])

    def _summary(self, key: tuple[str, int]) -> ReplicaSummary | None:
        partition = self._by_key.get(ReplicaKey(*key))
        return summary_of(partition) if partition is not None and partition.in_service else None

    def fenced(self, name: str, command: Command, partitions: int) -> TidelogError | None:
        """Returns why a command of an older controller or for another incarnation is rejected.
        Its partitions may not be decoded yet; `partitions` is their number."""
        controller_epoch, broker_epoch = command.controller_epoch, command.broker_epoch
        code = fence_command(
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            known_controller_epoch=self.controller_epoch,
            known_broker_epoch=self.broker_epoch,
        )
        if code is None:
            return None
        stale_controller = code is ErrorCode.STALE_CONTROLLER_EPOCH
        cause = Cause.STALE_CONTROLLER_EPOCH if stale_controller else Cause.STALE_BROKER_EPOCH
        refusal = CommandRefusal(name, command.controller_id, controller_epoch, broker_epoch, cause)
        self._events.refused(refusal, partitions, shared_trace_id(command))
        if stale_controller:
            return of_older_controller(self.broker_id, controller_epoch, self.controller_epoch)
        return for_former_life(self.broker_id, broker_epoch, self.broker_epoch)

    def _refusal(self, name: str, command: Command) -> TidelogError | None:
        refusal = self.fenced(name, command, len(command.partitions))
        if refusal is not None:
            return refusal
        self.controller_epoch = command.controller_epoch
        self.broker_epoch = command.broker_epoch
        self.on_store_revision(newest_revision(command))
        return None

    def _take(
        self,
        wanted: PartitionCommand,
        command: LeaderAndIsrCommand,
        failed: Mapping[ReplicaKey, Exception],
    ) -> tuple[PartitionResult, Partition | None]:
        """Brings one replica into the target state. Returns the partition if its state changed.
        The revision is set only at the end, so that a repeat after a failure counts
        (KAFKA-9307). `failed`: why logs could not be opened before."""
        topic_id, number = wanted.state.topic_id, wanted.partition.partition
        done = PartitionResult(topic_id, number, wanted.revision, None)
        part = role_part(wanted, self.broker_id, command)
        if self._stopped.is_late(part.key, wanted.revision):
            self._events.ignored(part, Cause.STALE_REVISION)
            return done, None
        present = self._by_name.get(wanted.partition)
        if present is not None and wanted.revision <= present.revision:
            if present.topic_id != topic_id:
                # The command is older than the topic that has the name here now.
                self._events.ignored(part, Cause.OTHER_TOPIC_ID, present.revision)
                return done, None
            if wanted.revision < present.revision:
                self._events.ignored(part, Cause.STALE_REVISION, present.revision)
        else:
            self._events.received(part)
        try:
            durability_changed = False
            if present is not None and wanted.revision < present.revision:
                # The config is as old as the command that brings it.
                partition = present
            else:
                partition = self._replica(wanted, part, failed.get(part.key))
                synced = self._configs.of(wanted.partition).durability == "synced"
                durability_changed = partition.set_synced(synced)
            news = partition.take(
                wanted.state,
                wanted.revision,
                broker_epoch=command.broker_epoch,
                now_ms=self._clock.monotonic_ms(),
            )
        except TidelogError as error:
            self._events.failed(part, Cause.NONE, str(error))
            return PartitionResult(topic_id, number, 0, error), None
        except LogError as error:
            self._events.failed(part, cause_of(error), str(error))
            failure = TidelogError(ErrorCode.STORAGE_ERROR, str(error))
            return PartitionResult(topic_id, number, 0, failure), None
        if news:
            self._say_taken(part, partition, command.broker_epoch)
            if partition.leader_to_follow != NO_LEADER:
                self.on_following(partition.key)
        result = PartitionResult(topic_id, number, partition.revision, None)
        return result, partition if news or durability_changed else None

    def _say_taken(self, part: Part, partition: Partition, broker_epoch: int) -> None:
        assert partition.state is not None
        if part.kind is Kind.BECOME_LEADER and partition.leading is None:
            # A decision for a previous incarnation makes no replica lead (rule
            # `losses-remembered-across-incarnations`).
            former = partition.state.leader_broker_epoch != broker_epoch
            self._events.ignored(part, Cause.STALE_BROKER_EPOCH if former else Cause.NONE)
            return
        self._events.completed(
            part,
            {
                "leader": partition.state.leader,
                "isr": sorted(partition.state.isr_ids),
                "log_end_offset": partition.log.log_end_offset,
                "high_watermark": partition.high_watermark,
            },
        )

    def _replica(
        self, wanted: PartitionCommand, part: Part, failure: Exception | None
    ) -> Partition:
        """Returns the replica of a command, and creates it if needed. `failure`: why its log
        could not be opened before."""
        present = self._by_name.get(wanted.partition)
        if present is not None and present.topic_id != wanted.state.topic_id:
            # The topic was deleted and created again, without a command in between.
            known_epoch = present.leader_epoch
            since_ms = self._logs.wall_ms()
            self._remove(present, delete=False, since_ms=since_ms)
            former = ReplicaKey(present.topic_id, present.name.partition)
            by = Epochs(part.controller_epoch, part.broker_epoch)
            change = set_aside(self.broker_id, since_ms, Cause.OTHER_TOPIC_ID)
            self._events.stopped(present.name, former, change, by, known_epoch, wanted.revision)
            present = None
        config = self._configs.take(
            wanted.partition, wanted.state.topic_id, wanted.config, wanted.config_revision
        )
        key = part.key
        is_new = self._logs.is_new(key)
        try:
            if failure is not None:
                raise failure
            log = self._logs.open_replica(wanted.partition, key, config)
        except LogStorageError as error:
            self.disk.not_opened(key, wanted.partition, error)
            raise
        self.disk.opened(key)
        if is_new:
            self._events.created(part)
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

    def _stop(self, wanted: StopPartition, command: StopReplicaCommand) -> PartitionResult:
        """Stops one replica. A command about another topic id, or one that is not newer than
        what this replica knows, is acknowledged and has no effect (KIP-570; rule
        `decisions-ordered-by-revision`)."""
        part = stop_part(wanted, command)
        key = part.key
        partition = self._by_key.get(key)
        if partition is None and not self.has_full_state.is_set():
            error = stops_nothing_yet(self.broker_id, wanted.partition)
            self._events.failed(part, Cause.NONE, error.message)
            return PartitionResult(*key, 0, error)
        if partition is not None and wanted.revision <= partition.revision:
            self._events.ignored(part, Cause.STALE_REVISION, partition.revision)
            return PartitionResult(*key, wanted.revision, None)
        # A replica without a partition still exists if it was under repair, or not named by any
        # command yet. Otherwise it is gone already, as the command requires.
        is_there = partition is not None or self._logs.name_of(key) is not None
        if is_there:
            self._events.received(part)
        try:
            if partition is not None:
                self._remove(partition, delete=wanted.delete)
            elif wanted.delete:
                self._logs.delete(key)
            else:
                self._logs.set_aside(key)
        except LogError as error:
            self._events.failed(part, cause_of(error), str(error))
            failure = TidelogError(ErrorCode.STORAGE_ERROR, str(error))
            return PartitionResult(*key, 0, failure)
        self._stopped.stopped(key, wanted.revision)
        self._events.forget(key)
        self.disk.opened(key)
        if is_there:
            self._events.completed(part)
        elif wanted.partition in self._by_name:
            self._events.ignored(part, Cause.OTHER_TOPIC_ID)
        return PartitionResult(*key, wanted.revision, None)

    def _remove(self, partition: Partition, *, delete: bool, since_ms: int | None = None) -> None:
        partition.stop_leading()
        self._followers.forget(partition)
        key = partition.key
        self._by_key.pop(key, None)
        if self._by_name.get(partition.name) is partition:
            del self._by_name[partition.name]
            self._configs.forget(partition.name)
        if delete:
            self._logs.delete(key)
        else:
            self._logs.set_aside(key, since_ms)
        self.disk.forget(key)

    async def _set_strays_aside(self, command: LeaderAndIsrCommand) -> None:
        """Sets aside what is no longer assigned here: replicas that the full state does not
        name, and that no newer command has named. All replicas of a topic that the controller
        cannot read stay as they are."""
        named: set[ReplicaKey] = set()
        await map_yielding(lambda each: named.add(key_of(each)), command.partitions)
        self._events.forget_unnamed(named)
        self.disk.keep_unopened(named)
        by = Epochs(command.controller_epoch, command.broker_epoch)
        revision = command.store_revision
        change = set_aside(self.broker_id, self._logs.wall_ms())
        present = await map_yielding(lambda k: (k, k in named), list(self._logs.keys()))
        for key in [k for k, is_named in present if not is_named]:
            await asyncio.sleep(0)
            partition = self._by_key.get(key)
            name = self._logs.name_of(key)
            if name is None or name.topic in command.unreadable_topics:
                continue
            known_epoch = partition.leader_epoch if partition is not None else NO_EPOCH
            try:
                if partition is None:
                    self._logs.set_aside(key, change.requested_at_ms)
                elif partition.revision <= revision:
                    self._remove(partition, delete=False, since_ms=change.requested_at_ms)
                else:
                    continue
                self._stopped.stopped(key, revision)
                self._events.stopped(name, key, change, by, known_epoch, revision)
            except LogError as error:
                # The replica stays in place, unused. The others must serve all the same.
                why = str(error)
                self._events.stopped(name, key, change, by, known_epoch, revision, why)

    async def close(self) -> None:
        """Creates no more replicas. No log is being opened on return."""
        self._opener.close()
        async with self._command:
            pass

    # -- finding a partition ----------------------------------------------------------

    def led(self) -> Iterator[Partition]:
        return (p for p in self._by_name.values() if p.leading is not None)

    def all(self) -> Collection[Partition]:
        return self._by_name.values()

    def find(self, key: ReplicaKey) -> Partition | None:
        return self._by_key.get(key)

    def find_led(self, name: TopicPartition) -> Partition | None:
        partition = self._by_name.get(name)
        return None if partition is None or partition.leading is None else partition

    def replica(self, key: ReplicaKey) -> Partition:
        """Returns a replica for a follower. Raises UNKNOWN_TOPIC_ID."""
        partition = self._by_key.get(key)
        if partition is None:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"broker {self.broker_id} has no replica of partition {key.partition} of the "
                f"topic with id {key.topic_id}",
            )
        return partition

    def partition(self, name: TopicPartition, topic_id: str = "") -> Partition:
        """Returns a partition for a client. Raises the client's error if it is not led here."""
        partition = self._by_name.get(name)
        known_id = self._cache.id_of(name.topic) if partition is None else partition.topic_id
        if topic_id and known_id and known_id != topic_id:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {name.topic!r} has the id {known_id} here, not {topic_id}: it was "
                "deleted and created again",
            )
        if partition is None or partition.leading is None:
            raise self.not_led_here(name, partition)
        return partition

    def not_led_here(self, name: TopicPartition, partition: Partition | None) -> TidelogError:
        """Returns why a client's request cannot be served here, and where it can."""
        live = self._cache.topics.get(name.topic)
        return not_led_here(
            self.broker_id,
            name,
            partition,
            live.entry if live is not None else None,
            self._cache.leader_hint(name, partition.topic_id if partition is not None else ""),
        )

    def partition_count(self, topic: str) -> int:
        """Returns 0 if the topic is not known."""
        live = self._cache.topics.get(topic)
        return 0 if live is None else live.entry.partitions

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def note_peer_clock(self, broker_id: int, wall_ms: int) -> None:
        self.on_clock(broker_id, wall_ms)

    def batch_limits(self, partition: Partition) -> BatchLimits:
        return BatchLimits.of(self._configs.of(partition.name))

    def fence_former_holder(self, producer_id: int, producer_epoch: int) -> None:
        """Raises FENCED_PRODUCER_EPOCH if the store has given a newer epoch to another holder of
        the producer's name, which may not have written here yet."""
        newest_epoch = self._cache.producer_epochs.get(producer_id, producer_epoch)
        if producer_epoch < newest_epoch:
            raise fenced(producer_id, producer_epoch, newest_epoch)

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Returns address and broker epoch of a leader, by the newest command or store entry."""
        live = self._cache.brokers.get(broker_id)
        told = self.leader_addresses.get(broker_id)
        if live is not None and (told is None or live.broker_epoch >= told.broker_epoch):
            return live.registration.address, live.broker_epoch
        return (told.address, told.broker_epoch) if told is not None else None

    def replica_failed(
        self, partition: Partition, error: LogError, what: str = "written"
    ) -> TidelogError:
        """Handles a log that could not be `what`. Returns the error for the client."""
        key = partition.key
        if error.is_transient or self.on_failure(key, error):
            self.disk.refused(key, error, what)
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
        if error.is_transient or self.on_failure(key, error):
            self.disk.refused(key, error, "synced")

    def log_unreadable(self, key: ReplicaKey, error: LogError) -> None:
        """Handles a log that could not be read, and that may have no partition yet."""
        if error.is_transient or self.on_failure(key, error):
            self.disk.refused(key, error, "read")

    def rejected(self, key: ReplicaKey, error: LogError) -> None:
        """Notes that the disk rejected the write of a repair; nothing is lost."""
        self.disk.refused(key, error, "written")

    def _suspend_failed(self, key: ReplicaKey, _: LogError) -> bool:
        self.suspend(key)
        return False

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
                self._followers.update([partition])

    def _is_in_service(self, name: TopicPartition) -> bool:
        partition = self._by_name.get(name)
        return partition is not None and partition.in_service

    def leaders_followed(self) -> Mapping[int, int]:
        """Returns how many partitions follow each leader."""
        counts: dict[int, int] = {}
        for partition in self._by_name.values():
            leader = partition.leader_to_follow
            if leader != NO_LEADER:
                counts[leader] = counts.get(leader, 0) + 1
        return counts
