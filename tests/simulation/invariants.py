"""Checks invariants after every step of a world, where something changed.

`store_rules` and `replica_rules` define them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from doubles.memory_data import MemoryData
from simulation.data_losses import DataLosses, replica_in
from simulation.disk import SimDisk
from simulation.level_rules import LevelRules
from simulation.loop import SimProcess
from simulation.machines import MachineClock
from simulation.observation import ControlCommand, observed, read_entries
from simulation.partition_id import PartitionId
from simulation.replica_rules import ReplicaRules
from simulation.replicas import Loss, Replica
from simulation.retention_rules import RetentionRules
from simulation.shadow_logs import Entry
from simulation.sound_copies import sole_sound_copy
from simulation.store_rules import StoreRules
from simulation.violation import Violation
from tidelog.model import Batch, TopicPartition
from tidelog_broker.broker import Broker
from tidelog_broker.clock_check import MAX_OFF_MS
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_broker.core.partition.range_digest import RangeDigest
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log import Log
from tidelog_broker.log.producer_history import ProducerHistory
from tidelog_broker.replicas.replica_commands import ReplicaCommands
from tidelog_runtime.metadata.keys import BrokerKey, Keys
from tidelog_runtime.metadata.schema import NOT_WHOLE, Member
from tidelog_runtime.metadata.store import KeyValue, Transaction

# How long a report of another broker's clock may take so that it says what time it is.
MAX_REPORT_MS = 1_000


class WatchedMachine(Protocol):
    @property
    def disk(self) -> SimDisk: ...

    @property
    def clock(self) -> MachineClock: ...


class WatchedBroker(Protocol):
    """A broker over all its incarnations; `broker` is None while it is dead."""

    @property
    def broker_id(self) -> int: ...

    @property
    def machine_id(self) -> int: ...

    @property
    def incarnation(self) -> int: ...

    @property
    def broker(self) -> Broker | None: ...

    @property
    def process(self) -> SimProcess | None: ...

    @property
    def machine(self) -> WatchedMachine: ...


class WatchedWorld(Protocol):
    @property
    def keys(self) -> Keys: ...

    @property
    def store_data(self) -> MemoryData: ...

    @property
    def brokers(self) -> Mapping[int, WatchedBroker]: ...

    @property
    def twins(self) -> Mapping[int, WatchedBroker]: ...

    @property
    def data_losses(self) -> DataLosses: ...

    @property
    def true_ms(self) -> int: ...

    @property
    def store_caller(self) -> SimProcess | None: ...

    @property
    def after_step(self) -> list[Callable[[], None]]: ...


class Life:
    """One incarnation of a broker, as the owner of its replicas."""

    def __init__(self, broker: WatchedBroker) -> None:
        self.broker_id = broker.broker_id
        self.incarnation = broker.incarnation
        twin = "" if broker.machine_id == broker.broker_id else "twin of "
        self.name = f"{twin}broker-{broker.broker_id}/{broker.incarnation}"
        self._broker = broker

    @property
    def broker_epoch(self) -> int:
        broker = self._broker.broker
        if broker is None or self._broker.incarnation != self.incarnation:
            return 0
        return broker.manager.broker_epoch


class Invariants:
    """The invariants of one world.

    - `losses`: what unclean elections gave up, in their order
    """

    def __init__(self, world: WatchedWorld) -> None:
        self._world = world
        self._data_losses = world.data_losses
        self.losses: list[Loss] = []
        self.store = StoreRules(world.keys, self._data_losses)
        self._levels = LevelRules(world.keys, self.store.seen)
        self.replicas = ReplicaRules(self.store, self.losses.append)
        self.retention = RetentionRules()
        self._names: dict[PartitionId, TopicPartition] = {}
        self._changed: dict[Partition, None] = {}
        self._replica_of: dict[Log, Replica] = {}
        self._losses_seen: dict[tuple[int, PartitionId], int] = {}
        self._failed: dict[Replica, None] = {}
        self._violation: Violation | None = None
        self._revision = 0
        self._waits: dict[Partition, list[tuple[object, asyncio.Future[Any]]]] = {}
        # The newest controller epoch and broker epoch that each process has obeyed.
        self._obeyed: dict[ReplicaCommands, tuple[int, int]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Checks the world while the context lasts."""
        self._revision = self._world.store_data.revision
        self._world.store_data.listen(self._store_changed)
        self._world.after_step.append(self._after_step)
        try:
            with observed(self, self._changed):
                yield
        finally:
            self._world.after_step.remove(self._after_step)
            self._world.store_data.stop_listening(self._store_changed)

    def raise_found(self) -> None:
        if self._violation is not None:
            raise self._violation

    def name_of(self, partition: PartitionId) -> TopicPartition:
        return self._names[partition]

    # -- the store -----------------------------------------------------------------------

    def _store_changed(self) -> None:
        data = self._world.store_data
        if data.revision == self._revision:
            return
        changes = data.changes_after(self._revision, "")
        self._revision = data.revision
        self._noting(lambda: self.store.absorb(changes))
        self._noting(lambda: self._levels.absorb(changes))

    def _noting(self, judge: Callable[[], None]) -> None:
        """Runs a check in the middle of a production call.

        A violation is raised after the step, since production code might catch it.
        """
        try:
            judge()
        except Violation as violation:
            self.note(violation)

    # -- replicas ------------------------------------------------------------------------

    def _after_step(self) -> None:
        if self._violation is not None:
            raise self._violation
        if not self._changed:
            return
        for partition in self._changed:
            self._judge_waits(partition)
            replica = self._replica_of.get(partition.log)  # type: ignore[call-overload]
            if replica is not None:
                self.replicas.judge(replica, partition)
        self._changed.clear()

    def log_opened(self, disk: Disk, log: Log) -> None:
        broker = self._broker_with(disk)
        topic, partition = replica_in(log.directory)
        self._names[partition] = TopicPartition(topic, partition.partition)
        replica = self.replicas.of(broker.machine_id, partition, broker.broker_id)
        self._replica_of[log] = replica
        replica.disk_log = log
        end = log.log_end_offset
        key = (broker.machine_id, partition)
        # Damage by flipped bits may be noticed, and cut off, at any later start.
        if end < replica.log.end and self._data_losses.was_damaged(*key):
            self._data_losses.replica_damaged(*key)
        losses = self._data_losses.last_of(*key)
        replaced = self._data_losses.last_replaced(broker.machine_id)
        seen = self._losses_seen.get(key, 0 if replaced else losses)
        lost = seen != losses or replica in self._failed
        self._losses_seen[key] = losses
        self._failed.pop(replica, None)
        if replaced > seen:
            self.replicas.contents_replaced(replica)
        found: list[Entry] | int = end
        if lost and (end > replica.log.end or replaced > seen):
            with broker.machine.disk.looked_at():
                found = read_entries(log)
        self._noting(
            lambda: self.replicas.opened(
                replica, Life(broker), log.log_start_offset, found, lost=lost
            )
        )
        if replaced > seen:
            replica.durable.reset(0)  # the former end is of another directory
        segments = [(s.next_offset, s.base_offset, s.size) for s in log._segments]
        replica.durable.opened(segments, end)
        if replaced > seen:
            replica.durable.look(broker.machine.disk, log.directory)  # its start has synced the log

    def _broker_with(self, disk: Disk) -> WatchedBroker:
        for broker in self._processes():
            if broker.machine.disk is disk:
                return broker
        raise LookupError("a log was opened on a disk that belongs to no broker")

    def _machine_of(self, replica: Replica) -> WatchedMachine:
        return self._process_of(replica).machine

    def _process_of(self, replica: Replica) -> WatchedBroker:
        return next(b for b in self._processes() if b.machine_id == replica.machine_id)

    def _is_time_unknown(self, replica: Replica) -> bool:
        """Whether its machine began with a wrong clock and other brokers did not report the time.

        A report that took long says less than the clock of a machine that was off for as long.
        """
        process = self._process_of(replica)
        clock = process.machine.clock
        if not clock.is_lost:
            return False
        peers = {} if process.broker is None else process.broker.clock_check.peers
        ahead_ms = self._world.true_ms - clock.monotonic_ms()
        return not peers or any(ahead_ms - p.ahead_ms > MAX_REPORT_MS for p in peers.values())

    def _processes(self) -> Iterator[WatchedBroker]:
        yield from self._world.brokers.values()
        yield from self._world.twins.values()

    def log_appended(self, log: Log, batches: Sequence[Batch]) -> None:
        replica = self._replica_of[log]
        self._note_written(log, replica)
        headers = [batch.header for batch in batches]
        true_ms = None if self._is_time_unknown(replica) else self._world.true_ms
        self.retention.appended(replica.partition, headers, true_ms)
        self._noting(lambda: self.replicas.appended(replica, headers))

    def _note_written(self, log: Log, replica: Replica) -> None:
        active = log._segments.active
        replica.durable.written(log.log_end_offset, active.base_offset, active.size)

    def log_before_cut(self, log: Log, offset: int) -> None:
        self._noting(lambda: self.replicas.before_cut(self._replica_of[log], offset))
        self._judge_sole_copies(log, offset)

    def _judge_sole_copies(self, log: Log, offset: int) -> None:
        """Checks that a replica keeps what no other one can read, even if it is damaged itself."""
        replica = self._replica_of[log]
        written = self.store.partitions.get(replica.partition)
        if written is None or replica.broker_id not in written.state.replicas:
            return
        others = [b for b in written.state.replicas if b != replica.broker_id]
        running = [self._world.brokers[b].broker for b in others]
        if not others or None in running:
            return  # a broker that is down may have it
        key = ReplicaKey(*replica.partition)
        logs = [p.log for b in running if b is not None if (p := b.manager.find(key)) is not None]
        with self._looked_at(*others, replica.broker_id):
            committed = self.replicas.committed_of(replica.partition).log
            sole = sole_sound_copy(log, offset, committed, logs)
        if sole is not None:
            self.found(
                "sole_sound_copy_cut",
                f"the log is cut to {offset}, and no other replica can read the committed "
                f"batch at offset {sole.base_offset}",
                broker=replica.broker_id,
                log=str(log.directory),
            )

    @contextmanager
    def _looked_at(self, *broker_ids: int) -> Iterator[None]:
        with ExitStack() as stack:
            for broker_id in broker_ids:
                stack.enter_context(self._world.brokers[broker_id].machine.disk.looked_at())
            yield

    def log_before_reset(self, log: Log, offset: int) -> None:
        self._noting(lambda: self.replicas.before_reset(self._replica_of[log], offset))

    def log_cut(self, log: Log, offset: int) -> None:
        self.replicas.cut(self._replica_of[log], offset)
        # Entries beyond the cut are dropped; the new end may lie within one of them.
        self._note_written(log, self._replica_of[log])
        for producer_id, entry in log.producers.states.entries:
            if entry.end_offset > log.log_end_offset:
                self.found(
                    "producer_known_beyond_log",
                    f"the log is cut to {log.log_end_offset}, and producer {producer_id} is known "
                    f"to have written up to {entry.end_offset}",
                    log=str(log.directory),
                )

    def producers_learned(self, history: ProducerHistory, states: ProducerStates) -> None:
        """Checks that learned producers are known; the log may hold no batch of theirs."""
        if history.states.to_value() != states.to_value():
            self.found(
                "learned_producers_lost",
                f"{len(states)} producers were learned, and {len(history.states)} are known",
            )

    def divergence_found(
        self, key: ReplicaKey, broker_id: int, own: RangeDigest, other: RangeDigest
    ) -> None:
        """Reports a violation: no replica may ever hold another committed batch."""
        self.found(
            "divergence_reported",
            f"the replica of broker {broker_id} is reported to hold other committed batches",
            replica=f"{key.topic_id}/{key.partition}",
            offsets=f"{own.start} to {own.end}",
            digests=f"{own} {other}",
        )

    def wait_began(self, partition: Partition, future: asyncio.Future[Any]) -> None:
        self._waits.setdefault(partition, []).append((partition.leading, future))

    def _judge_waits(self, partition: Partition) -> None:
        """Checks that waits for the high watermark of an epoch end with the epoch."""
        waits = self._waits.get(partition)
        if not waits:
            return
        waits[:] = [wait for wait in waits if not wait[1].done()]
        if any(leading is not partition.leading for leading, _ in waits):
            raise Violation(
                "wait_outlived_epoch",
                "a produce waits on for the high watermark of an epoch that is over",
                partition=str(partition.name),
            )

    def leader_committed(self, partition: Partition) -> None:
        """Checks the high watermark at once.

        Within the same step the leader may receive a smaller ISR, or its deposition.
        """
        replica = self._replica_of.get(partition.log)  # type: ignore[call-overload]
        if replica is not None:
            self._noting(lambda: self.replicas.judge(replica, partition))

    def end_reported(self, partition: Partition, end: int) -> None:
        replica = self._replica_of.get(partition.log)  # type: ignore[call-overload]
        if replica is not None:
            self._noting(lambda: self.replicas.judge_end(replica, partition.leader_epoch, end))

    def log_reset(self, log: Log, offset: int) -> None:
        self.replicas.reset(self._replica_of[log], offset)

    def log_start_moved(self, log: Log) -> None:
        replica = self._replica_of[log]
        config, start = self.store.config_of(replica.partition), log.log_start_offset
        is_near = self._machine_of(replica).clock.offset_ms <= MAX_OFF_MS
        unknown = is_near and self._is_time_unknown(replica)
        true_ms = None if unknown else self._world.true_ms
        self._noting(lambda: self.retention.deleted(replica, start, config, true_ms))
        self._noting(lambda: self.replicas.start_moved(replica, start))

    def log_synced(self, log: Log) -> None:
        """Checks that what counts as synced is on the disk.

        An fsync that succeeds after a failed one restores nothing (rule
        `damaged-replica-resigns-first`).
        """
        if log.closed:
            return  # deleted during the sync; another log may be in its place
        if log._unsynced_restores:
            return  # a batch is being written again in the middle; the next sync is checked
        replica = self._replica_of[log]
        disk = self._machine_of(replica).disk
        durable = replica.durable.look(disk, log.directory)
        if durable < log.flushed_offset:
            self.found(
                "synced_not_on_disk",
                f"all up to {log.flushed_offset} is taken for synced, and up to {durable} it is on "
                "the disk",
                broker=replica.broker_id,
                log=str(log.directory),
            )

    def log_failed(self, log: Log) -> None:
        self._failed[self._replica_of[log]] = None

    def log_sealing(self, log: Log) -> None:
        """Checks that no member seals a damaged batch that another member could send again.

        It has to resign instead, since a member counts for what it holds.
        """
        replica = self._replica_of[log]
        written = self.store.partitions.get(replica.partition)
        members = () if written is None else written.state.isr
        others = [b for b, epoch in members if b != replica.broker_id and epoch != NOT_WHOLE]
        if others:
            self.found(
                "sealed_though_others_have_it",
                f"brokers {others} are in the ISR, and could send it again",
                broker=replica.broker_id,
                log=str(log.directory),
            )

    def log_removed(self, log: Log) -> None:
        self._noting(lambda: self.replicas.removed(self._replica_of[log]))

    # -- commands ------------------------------------------------------------------------

    def command_obeyed(self, commands: ReplicaCommands, command: ControlCommand) -> None:
        controller_epoch, broker_epoch = self._obeyed.get(commands, (0, 0))
        self._obeyed[commands] = (
            max(controller_epoch, command.controller_epoch),
            max(broker_epoch, command.broker_epoch),
        )
        if command.controller_epoch < controller_epoch:
            self.found(
                "obeyed_deposed_controller",
                f"a command of controller epoch {command.controller_epoch} was carried out after "
                f"one of {controller_epoch}",
                broker=commands.broker_id,
            )
        if command.broker_epoch < broker_epoch:
            self.found(
                "obeyed_for_former_life",
                f"a command for broker epoch {command.broker_epoch} was carried out after one for "
                f"{broker_epoch}",
                broker=commands.broker_id,
            )

    def key_deleted(self, data: MemoryData, transaction: Transaction, former: KeyValue) -> None:
        """Checks that no registration of a serving process is removed.

        Neither a controller nor another process of the same broker id may remove it. A process
        may end its own registration, to register again. A backup of the store, which no other
        process reads, has no registration of a running process.
        """
        key = self._world.keys.parse(former.key)
        if data is not self._world.store_data or not isinstance(key, BrokerKey):
            return
        guarded = {guard.key for guard in transaction.guards}
        by = "the controller" if self._world.keys.controller in guarded else "another process"
        machine_id = self.store.machine_of(Member(key.broker_id, former.create_revision))
        for process in self._processes():
            broker = process.broker
            if process.broker_id != key.broker_id or broker is None or broker.stopped.is_set():
                continue
            if process.process is self._world.store_caller or process.machine_id != machine_id:
                continue
            if broker.manager.broker_epoch == former.create_revision:
                self.found(
                    "live_registration_removed",
                    f"{by} removed life {former.create_revision}, whose process serves",
                    broker=key.broker_id,
                )

    def found(self, name: str, message: str, **fields: object) -> None:
        """Notes a violation, which is raised after the step."""
        self.note(Violation(name, message, **fields))

    def note(self, violation: Violation) -> None:
        """Keeps the first violation, which is raised after the step."""
        self._violation = self._violation or violation
