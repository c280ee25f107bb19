"""Test parts: the replica manager of broker 1 over logs in memory, and builders of the commands
and registrations that it receives.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any

from tidelog.errors import TidelogError
from tidelog.model import Acks, TopicPartition
from tidelog.state_changes.event import Kind, StateChange
from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.exchange import Appended, FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.range_digest import LogDigests
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.membership.change_ids import ChangeIds
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replicas.replica_commands import ReplicaCommands
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.data_directory import DataDirectory, Identity
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.replica_digests import ReadDone
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.producer_records import NamedProducer, encode_producer_record
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    LeaderAndIsr,
    TopicEntry,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.replica_control import (
    CommandResult,
    LeaderAddress,
    LeaderAndIsrCommand,
    PartitionCommand,
    StopPartition,
    StopReplicaCommand,
)
from tidelog_runtime.telemetry.state_change_log import Filter, StateChangeLog
from unit.broker.fake_log import NAME, TOPIC_ID, epoch_of, sent, state
from unit.broker.log.memory_disk import MemoryDisk
from unit.metadata.virtual_time import virtual_clock

KEYS = Keys("test")
DATA = PurePath("/data")
KEY = ReplicaKey(TOPIC_ID, NAME.partition)
PATIENCE_SECONDS = 60.0  # seconds of virtual time


def emitted_events(log: StateChangeLog, *kinds: Kind) -> list[StateChange]:
    return log.recent(Filter(kinds=frozenset(kind.value for kind in kinds)))


def stages(changes: Iterable[StateChange]) -> list[str]:
    """Kind and stage of each change, for example "become_leader completed"."""
    return [f"{change.kind.value} {change.stage.value}" for change in changes]


def on(partition: int) -> TopicPartition:
    return TopicPartition(NAME.topic, partition)


def address_of(broker_id: int) -> str:
    return f"10.0.0.{broker_id}:7500"


def change_ids(clock: Clock) -> ChangeIds:
    return ChangeIds(1, lambda: epoch_of(1), clock)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - conditions of any kind
            await asyncio.sleep(0.001)


async def until_idle() -> None:
    """Run everything that can run without time passing."""
    await asyncio.sleep(0.000_001)


async def in_place(work: Callable[[], None]) -> None:
    """`run_blocking` for work that takes no time."""
    work()


class NoController:
    """`Controllers` where no controller is registered."""

    async def report_unreachable_leaders(
        self, address: str, report: UnreachableLeadersReport
    ) -> TidelogError | None:
        raise AssertionError(f"{report} to {address}")

    async def report_disk(self, address: str, report: DiskReport) -> TidelogError | None:
        raise AssertionError(f"{report} to {address}")

    async def close(self) -> None:
        pass


@asynccontextmanager
async def at_work(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless work in the background, and fail if it ends by itself."""
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


class KeptDigests:
    """`DigestSource` of a follower: digests by replica, and the ranges that it was asked to read
    from the disk.
    """

    def __init__(self) -> None:
        self.kept: dict[ReplicaKey, LogDigests] = {}
        self.requested: list[tuple[ReplicaKey, int, int]] = []
        self.done: list[ReadDone] = []
        self.opened: list[ReplicaKey] = []
        self.read_again_of: list[ReplicaKey] = []

    def of(self, key: ReplicaKey) -> LogDigests | None:
        return self.kept.get(key)

    def read(
        self,
        key: ReplicaKey,
        start: int,
        end: int,
        requester: Hashable,  # noqa: ARG002
        done: ReadDone,
        *,
        with_contents: bool = False,  # noqa: ARG002
    ) -> bool:
        self.requested.append((key, start, end))
        self.done.append(done)
        return True

    def read_open(self, key: ReplicaKey) -> None:
        self.opened.append(key)

    def read_again(self, key: ReplicaKey) -> bool:
        part = self.kept[key].to_read_again(0)
        if part is not None:
            self.read_again_of.append(key)
            self.kept[key].read_again(part[0], None)
        return part is not None


class NotedFollowers:
    def __init__(self) -> None:
        self.updated: list[Partition] = []
        self.forgotten: list[Partition] = []

    def update(self, partitions: Iterable[Partition]) -> None:
        self.updated.extend(partitions)

    def forget(self, partition: Partition) -> None:
        self.forgotten.append(partition)


class Listener:
    """Passes events to the purgatory, as a broker does, and records requests for an ISR
    evaluation.
    """

    def __init__(self, purgatory: Purgatory) -> None:
        self.log_grew = purgatory.log_grew
        self.high_watermark_moved = purgatory.high_watermark_moved
        self.log_start_moved = purgatory.log_start_moved
        self.leadership_ended = purgatory.leadership_ended
        self.followers_forgotten = purgatory.followers_forgotten
        self.to_evaluate: list[Partition] = []
        self.to_sync: list[Partition] = []

    def isr_needs_evaluation(self, partition: Partition) -> None:
        self.to_evaluate.append(partition)

    def sync_needed(self, partition: Partition) -> None:
        self.to_sync.append(partition)


class Replicas:
    def __init__(
        self,
        disk: Disk | None = None,
        path: PurePath = DATA,
        run_blocking: RunBlocking = in_place,
    ) -> None:
        self.clock = virtual_clock()
        self.disk = disk or MemoryDisk()
        self.cache = MetadataCache(KEYS)
        self.purgatory = Purgatory()
        self.listener = Listener(self.purgatory)
        self.followers = NotedFollowers()
        self.logs = LogDirectory(self.disk, path, self.clock)
        self.damaged = self.logs.open_all()
        self.cold_reads = ColdReads(self.disk, in_place)
        self.state_changes = StateChangeLog("broker-1", self.clock)
        self.manager = ReplicaManager(
            1,
            self.logs,
            self.cache,
            self.clock,
            self.listener,
            lambda _: self.followers,
            self.state_changes,
            on_failure=lambda key, error: self.on_failure(key, error),
        )
        self.commands = ReplicaCommands(
            self.manager,
            self.logs,
            self.clock,
            self.state_changes,
            run_blocking,
            on_following=lambda key: self.on_following(key),
        )
        self.manager.broker_epoch = epoch_of(1)
        self.on_failure: Callable[[ReplicaKey, LogError], bool] = self._failed
        self.on_following: Callable[[ReplicaKey], None] = lambda _: None
        self.failures: list[tuple[ReplicaKey, LogError]] = []

    def _failed(self, key: ReplicaKey, error: LogError) -> bool:
        """Suspend the replica as a broker does, but without a repair."""
        self.failures.append((key, error))
        self.manager.suspend(key)
        return False

    @property
    def memory(self) -> MemoryDisk:
        assert isinstance(self.disk, MemoryDisk)
        return self.disk

    def events(self, *kinds: Kind) -> list[StateChange]:
        """The events emitted so far, filtered by kind if kinds are given."""
        return emitted_events(self.state_changes, *kinds)

    async def take(
        self,
        new_state: LeaderAndIsr | None = None,
        *,
        revision: int = 10,
        numbers: Sequence[int] = (0,),
        config: Mapping[str, str] | None = None,
    ) -> list[Partition]:
        """Take a command of the controller about these partitions."""
        result = await self.commands.leader_and_isr(
            command(new_state or state(), revision, numbers=numbers, config=config)
        )
        assert result.error is None
        assert [r.error for r in result.partitions] == [None] * len(numbers)
        return [
            partition for partition in self.manager.all() if partition.name.partition in numbers
        ]

    async def lead(self, number: int = 0, new_state: LeaderAndIsr | None = None) -> Partition:
        (partition,) = await self.take(new_state, numbers=[number])
        assert partition.leading
        return partition

    def knows(self, new_state: LeaderAndIsr, revision: int, name: TopicPartition = NAME) -> None:
        """Deliver a partition's state as the watch does."""
        self.cache.apply([partition_change(new_state, revision, name)])
        self.manager.observed([name])


def command(
    new_state: LeaderAndIsr,
    revision: int = 10,
    *,
    numbers: Sequence[int] = (0,),
    config: Mapping[str, str] | None = None,
    broker_epoch: int = epoch_of(1),
    controller_epoch: int = 1,
    full_state: bool = False,
    store_revision: int | None = None,
    unreadable_topics: Sequence[str] = (),
) -> LeaderAndIsrCommand:
    return LeaderAndIsrCommand(
        controller_id=1,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        full_state=full_state,
        partitions=[PartitionCommand(on(p), new_state, revision, config or {}) for p in numbers],
        leaders={b: LeaderAddress(address_of(b), epoch_of(b)) for b in (1, 2, 3)},
        store_revision=revision if store_revision is None else store_revision,
        unreadable_topics=unreadable_topics,
    )


def stop_command(
    revision: int,
    *,
    topic_id: str = TOPIC_ID,
    delete: bool = True,
    broker_epoch: int = epoch_of(1),
    controller_epoch: int = 1,
) -> StopReplicaCommand:
    stop = StopPartition(NAME, topic_id, 6, revision, delete)
    return StopReplicaCommand(1, controller_epoch, broker_epoch, [stop])


def revision_of(result: CommandResult) -> int:
    (only,) = result.partitions
    assert only.error is None
    return only.revision


def fetch_by(
    partition: Partition, follower: int, offset: int | None = None, epoch: int | None = None
) -> None:
    """A fetch of a follower that holds everything below `offset`, by default the leader's whole
    log.
    """
    end = partition.log.log_end_offset if offset is None else offset
    partition.replica_fetch(follower, epoch_of(follower), position(partition, end, epoch), 1)


def position(partition: Partition, offset: int, epoch: int | None = None) -> FetchPosition:
    """The fetch position of a follower whose log is a prefix of the leader's."""
    return FetchPosition(
        leader=1,
        leader_epoch=partition.leader_epoch if epoch is None else epoch,
        fetch_offset=offset,
        last_fetched_epoch=partition.log.latest_epoch if offset else -1,
        flushed_offset=0,
        log_start_offset=0,
    )


def append(partition: Partition, *records: bytes, at_ms: int = 1) -> Appended:
    """Append each record as its own batch. They are committed only when all followers have
    fetched them.
    """
    return partition.append([sent(r) for r in records or (b"r",)], Acks.LEADER, at_ms)


def commit(partition: Partition, *records: bytes, at_ms: int = 1) -> None:
    append(partition, *records, at_ms=at_ms)
    for follower in (2, 3):
        fetch_by(partition, follower)


def data_directory(broker_id: int, seed: int = 1, **changes: Any) -> DataDirectory:
    """An empty directory on its own disk. `changes` are changes of its identity."""
    disk = MemoryDisk()
    disk.make_directory(DATA)
    fields = {"node_uuid": f"uuid-{broker_id}", "boot_id": "boot 1", **changes}
    return DataDirectory(disk, DATA, Identity(broker_id, **fields), random.Random(seed))


def registration(broker_id: int, **changes: object) -> BrokerRegistration:
    fields: dict[str, object] = {
        "address": address_of(broker_id),
        "rack": "",
        "node_uuid": f"uuid-{broker_id}",
        "state": RUNNING,
        "whole_since": 0,
        "synced_whole_since": 0,
    }
    return BrokerRegistration(**{**fields, **changes})  # type: ignore[arg-type]


def broker_change(broker_id: int, revision: int | None = None, **changes: object) -> Changed:
    """A registration that was created at the broker's epoch and last written at `revision`."""
    created = epoch_of(broker_id)
    written = revision or created
    value = encode(registration(broker_id, **changes))
    key = KEYS.broker(broker_id)
    return Changed(key, KeyValue(key, value, created, written), written)


def partition_change(
    new_state: LeaderAndIsr, revision: int, name: TopicPartition = NAME
) -> Changed:
    key = KEYS.leader_and_isr(name)
    return Changed(key, KeyValue(key, encode_leader_and_isr(new_state), 1, revision), revision)


def topic_change(partitions: int = 1, topic_id: str = TOPIC_ID, revision: int = 9) -> Changed:
    key = KEYS.topic(NAME.topic)
    value = encode(TopicEntry(topic_id, partitions, 3))
    return Changed(key, KeyValue(key, value, revision, revision), revision)


def holder_change(producer_id: int, producer_epoch: int, revision: int = 9) -> Changed:
    """A client has taken the name of a producer."""
    key = KEYS.producer(f"name-of-{producer_id}")
    value = encode_producer_record(NamedProducer(producer_id, producer_epoch))
    return Changed(key, KeyValue(key, value, 1, revision), revision)


class DiskNotes:
    """Records what a fetcher reports of its replicas' disks. No disk rejects anything."""

    def __init__(self) -> None:
        self.taken: list[tuple[ReplicaKey, str]] = []

    def took(self, key: ReplicaKey, what: str) -> None:
        self.taken.append((key, what))

    def __bool__(self) -> bool:
        return False
