"""Carries out the controller's commands.

Commands run one at a time. The event loop runs after every few partitions, so that a large command
does not delay the data plane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog.state_changes.event import Cause, Kind, Stage, set_aside
from tidelog_broker.background import RunBlocking
from tidelog_broker.core.command_decisions import (
    RoleDecision,
    StopDecision,
    decide_role,
    decide_stop,
    is_stray,
    newer_address,
)
from tidelog_broker.core.command_fencing import (
    cannot_stop_yet,
    fence_command,
    for_previous_incarnation,
    of_older_controller,
)
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.replica_registry import key_of
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.replicas.command_events import (
    CommandEvents,
    CommandRejection,
    Epochs,
    Part,
    role_part,
    stop_part,
)
from tidelog_broker.replicas.disk_events import cause_of
from tidelog_broker.replicas.log_opener import NO_FAILURES, OPENED_AT_ONCE, LogOpener
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock
from tidelog_runtime.command_traces import shared_trace_id
from tidelog_runtime.cooperative import map_yielding
from tidelog_runtime.replica_control import (
    Command,
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    LeaderAndIsrCommand,
    PartitionCommand,
    PartitionResult,
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


class ReplicaCommands:
    """Commands of controllers for the replicas of one broker.

    - `on_following`: called when a replica has another leader to follow.
    - `on_store_revision`: called with the revision on which an accepted command rests, before it
      has any effect.
    - `on_full_state`: called with the number of partitions taken from a full state, and with their
      total.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        logs: LogDirectory,
        clock: Clock,
        state_changes: StateChangeLog,
        run_blocking: RunBlocking,
        *,
        on_following: Callable[[ReplicaKey], None] = lambda _: None,
        on_store_revision: Callable[[int], None] = lambda _: None,
        on_full_state: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self._manager = manager
        self.broker_id = manager.broker_id
        self._logs = logs
        self._clock = clock
        self._opener = LogOpener(logs, run_blocking, manager.broker_id)
        self._events = CommandEvents(state_changes, manager.broker_id)
        self._running = asyncio.Lock()
        self._on_following = on_following
        self._on_store_revision = on_store_revision
        self._on_full_state = on_full_state

    @property
    def broker_epoch(self) -> int:
        """The incarnation for which commands are accepted; 0: none yet."""
        return self._manager.broker_epoch

    async def leader_and_isr(self, command: LeaderAndIsrCommand) -> CommandResult:
        async with self._running:
            rejection = self._rejection("leader_and_isr", command)
            if rejection is not None:
                return CommandResult(error=rejection)
            if command.full_state:
                self._events.full_state(Stage.RECEIVED, command)
            addresses = self._manager.leader_addresses
            for broker_id, address in command.leaders.items():
                addresses[broker_id] = newer_address(addresses.get(broker_id), address) or address
            results = []
            news: list[Partition] = []
            cost = 0
            try:
                failed = NO_FAILURES
                for position, wanted in enumerate(command.partitions):
                    if position % OPENED_AT_ONCE == 0:
                        some = command.partitions[position : position + OPENED_AT_ONCE]
                        failed = await self._opener.open(
                            self._manager.new_replicas(some, self._manager.is_valid_config)
                        )
                    is_known = self._manager.find_named(wanted.partition) is not None
                    cost += 1 if is_known else CREATION_COST
                    result, partition = self._take(wanted, command, failed)
                    results.append(result)
                    if partition is not None:
                        news.append(partition)
                    if command.full_state:
                        self._on_full_state(len(results), len(command.partitions))
                    if len(news) >= FOLLOWED_AT_ONCE:
                        self._manager.followers.update(news)
                        news = []
                    if cost >= COST_PER_TURN:
                        cost = 0
                        await asyncio.sleep(0)
            finally:
                # Also if the controller hung up half-way: what was taken is no news to the command
                # that repeats this one (KAFKA-9307).
                self._manager.followers.update(news)
            if command.full_state:
                await self._set_strays_aside(command)
                self._manager.has_full_state.set()
                self._events.full_state(Stage.COMPLETED, command)
            return CommandResult(partitions=results)

    async def stop_replica(self, command: StopReplicaCommand) -> CommandResult:
        async with self._running:
            rejection = self._rejection("stop_replica", command)
            if rejection is not None:
                return CommandResult(error=rejection)
            results = []
            for wanted in command.partitions:
                results.append(self._stop(wanted, command))
                await asyncio.sleep(0)
            return CommandResult(partitions=results)

    async def describe_replicas(self, command: DescribeReplicasCommand) -> DescribeReplicasResult:
        """Returns how far logs reach. Waits for the running command, which may change them."""
        async with self._running:
            rejection = self._rejection("describe_replicas", command)
            if rejection is not None:
                return DescribeReplicasResult(error=rejection)
            found = await map_yielding(self._manager.summary, command.partitions)
            return DescribeReplicasResult(replicas=[r for r in found if r is not None])

    def fenced(self, name: str, command: Command, partitions: int) -> TidelogError | None:
        """Returns why a command of an older controller or for another incarnation is rejected.
        Its partitions may not be decoded yet; `partitions` is their number."""
        controller_epoch, broker_epoch = command.controller_epoch, command.broker_epoch
        code = fence_command(
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            known_controller_epoch=self._manager.controller_epoch,
            known_broker_epoch=self._manager.broker_epoch,
        )
        if code is None:
            return None
        stale_controller = code is ErrorCode.STALE_CONTROLLER_EPOCH
        cause = Cause.STALE_CONTROLLER_EPOCH if stale_controller else Cause.STALE_BROKER_EPOCH
        rejection = CommandRejection(
            name, command.controller_id, controller_epoch, broker_epoch, cause
        )
        self._events.rejected(rejection, partitions, shared_trace_id(command))
        if stale_controller:
            return of_older_controller(
                self.broker_id, controller_epoch, self._manager.controller_epoch
            )
        return for_previous_incarnation(self.broker_id, broker_epoch, self._manager.broker_epoch)

    def _rejection(self, name: str, command: Command) -> TidelogError | None:
        rejection = self.fenced(name, command, len(command.partitions))
        if rejection is not None:
            return rejection
        self._manager.controller_epoch = command.controller_epoch
        self._manager.broker_epoch = command.broker_epoch
        self._on_store_revision(newest_revision(command))
        return None

    def _take(
        self,
        wanted: PartitionCommand,
        command: LeaderAndIsrCommand,
        failed: Mapping[ReplicaKey, Exception],
    ) -> tuple[PartitionResult, Partition | None]:
        """Brings one replica into the target state. Returns the partition if its state changed.

        The revision is set only at the end, so that a repeat after a failure counts (KAFKA-9307).
        `failed`: why logs could not be opened before.
        """
        topic_id, number = key_of(wanted)
        part = role_part(wanted, self.broker_id, command)
        present = self._manager.find_named(wanted.partition)
        is_late = self._manager.stopped.is_late(part.key, wanted.revision)
        decision = decide_role(wanted, present, is_late=is_late)
        self._emit_decision(decision, part, present)
        if decision in (RoleDecision.ALREADY_STOPPED, RoleDecision.OTHER_TOPIC):
            return PartitionResult(topic_id, number, wanted.revision, None), None
        durability_changed = False
        try:
            if decision is RoleDecision.OUTDATED and present is not None:
                # The config is as old as the command that brings it.
                partition = present
            else:
                partition = self._open(wanted, part, failed.get(part.key))
                durability_changed = partition.set_synced(self._manager.is_synced(wanted.partition))
            is_news = partition.take(
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
        if is_news:
            self._emit_taken(part, partition, command.broker_epoch)
            if partition.leader_to_follow != NO_LEADER:
                self._on_following(partition.key)
        result = PartitionResult(topic_id, number, partition.revision, None)
        return result, partition if is_news or durability_changed else None

    def _emit_decision(self, decision: RoleDecision, part: Part, present: Partition | None) -> None:
        known_revision = present.revision if present is not None else None
        match decision:
            case RoleDecision.ALREADY_STOPPED:
                self._events.ignored(part, Cause.STALE_REVISION)
            case RoleDecision.OTHER_TOPIC:
                self._events.ignored(part, Cause.OTHER_TOPIC_ID, known_revision)
            case RoleDecision.OUTDATED:
                self._events.ignored(part, Cause.STALE_REVISION, known_revision)
            case RoleDecision.NEW:
                self._events.received(part)

    def _open(self, wanted: PartitionCommand, part: Part, failure: Exception | None) -> Partition:
        """Returns the replica of a command, and creates it if needed. `failure`: why its log
        could not be opened before."""
        present = self._manager.find_named(wanted.partition)
        if present is not None and present.topic_id != wanted.state.topic_id:
            # The topic was deleted and created again, without a command in between.
            known_epoch = present.leader_epoch
            since_ms = self._logs.strays.now_ms()
            self._manager.remove(present, delete=False, since_ms=since_ms)
            by = Epochs(part.controller_epoch, part.broker_epoch)
            change = set_aside(self.broker_id, since_ms, Cause.OTHER_TOPIC_ID)
            self._events.stopped(
                present.name, present.key, change, by, known_epoch, wanted.revision
            )
        partition, is_new = self._manager.open_replica(wanted, part.key, failure)
        if is_new:
            self._events.created(part)
        return partition

    def _emit_taken(self, part: Part, partition: Partition, broker_epoch: int) -> None:
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

    def _stop(self, wanted: StopPartition, command: StopReplicaCommand) -> PartitionResult:
        """Stops one replica, and returns the revision that is acknowledged."""
        part = stop_part(wanted, command)
        key = part.key
        partition = self._manager.find(key)
        decision = decide_stop(
            wanted,
            partition,
            has_full_state=self._manager.has_full_state.is_set(),
            has_log=self._logs.name_of(key) is not None,
        )
        if decision is StopDecision.NOT_YET:
            error = cannot_stop_yet(self.broker_id, wanted.partition)
            self._events.failed(part, Cause.NONE, error.message)
            return PartitionResult(*key, 0, error)
        if decision is StopDecision.OUTDATED:
            known_revision = partition.revision if partition is not None else None
            self._events.ignored(part, Cause.STALE_REVISION, known_revision)
            return PartitionResult(*key, wanted.revision, None)
        if decision is StopDecision.STOP:
            self._events.received(part)
        try:
            if partition is not None:
                self._manager.remove(partition, delete=wanted.delete)
            elif wanted.delete:
                self._logs.delete(key)
            else:
                self._logs.set_aside(key)
        except LogError as error:
            self._events.failed(part, cause_of(error), str(error))
            failure = TidelogError(ErrorCode.STORAGE_ERROR, str(error))
            return PartitionResult(*key, 0, failure)
        self._manager.stopped.stopped(key, wanted.revision)
        self._events.forget(key)
        self._manager.disk.opened(key)
        if decision is StopDecision.STOP:
            self._events.completed(part)
        elif self._manager.find_named(wanted.partition) is not None:
            self._events.ignored(part, Cause.OTHER_TOPIC_ID)
        return PartitionResult(*key, wanted.revision, None)

    async def _set_strays_aside(self, command: LeaderAndIsrCommand) -> None:
        """Sets aside what is no longer assigned here: replicas that the full state does not
        name, and that no newer command has named. All replicas of a topic that the controller
        cannot read stay as they are."""
        named: set[ReplicaKey] = set()
        await map_yielding(lambda each: named.add(key_of(each)), command.partitions)
        self._events.forget_unnamed(named)
        self._manager.disk.keep_unopened(named)
        by = Epochs(command.controller_epoch, command.broker_epoch)
        revision = command.store_revision
        change = set_aside(self.broker_id, self._logs.strays.now_ms())
        present = await map_yielding(lambda k: (k, k in named), list(self._logs.keys()))
        for key in [k for k, is_named in present if not is_named]:
            await asyncio.sleep(0)
            partition = self._manager.find(key)
            name = self._logs.name_of(key)
            if name is None or not is_stray(name, partition, revision, command.unreadable_topics):
                continue
            known_epoch = partition.leader_epoch if partition is not None else NO_EPOCH
            try:
                if partition is None:
                    self._logs.set_aside(key, change.requested_at_ms)
                else:
                    self._manager.remove(partition, delete=False, since_ms=change.requested_at_ms)
                self._manager.stopped.stopped(key, revision)
                self._events.stopped(name, key, change, by, known_epoch, revision)
            except LogError as error:
                # The replica stays in place, unused. The others must serve all the same.
                why = str(error)
                self._events.stopped(name, key, change, by, known_epoch, revision, why)

    async def close(self) -> None:
        """Creates no more replicas. No log is being opened on return."""
        self._opener.close()
        async with self._running:
            pass
