"""A damaged replica on a sound broker: found, taken out of service, marked, resigned, cut,
returned to service.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import PurePath

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, TopicPartition
from tidelog.state_changes.event import Kind, Stage
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.damage.other_replicas import OtherReplicas
from tidelog_broker.damage.replica_repair import MAX_RETRY_DELAY_S, ReplicaRepair, repair_delay_s
from tidelog_broker.damage.resignations import Resignations
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogCorruptError, LogFailedError, LogStorageError
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    Member,
    decode_leader_and_isr,
    encode_leader_and_isr,
)
from unit.broker.broker_parts import DATA, KEY, KEYS, Replicas, append, change_ids, command, commit
from unit.broker.fake_log import NAME, TOPIC_ID, sent, state
from unit.broker.flaky_store import FlakyStore
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.stored_logs import checkpoint

MARK = DATA / "damaged" / f"{TOPIC_ID}.0"
REPLICA = DATA / "replicas" / f"orders-0.{TOPIC_ID}"
SEGMENT = REPLICA / f"{0:020d}.log"


def test_the_first_repair_is_immediate_and_later_ones_back_off() -> None:
    delays = [repair_delay_s(failures) for failures in range(1, 20)]
    assert delays[:4] == [0.0, 1.0, 2.0, 4.0]
    assert delays == sorted(delays)
    assert delays[-1] == MAX_RETRY_DELAY_S


class Broker:
    """Broker 1 on a disk in memory, with a store that holds the partitions of its commands."""

    def __init__(self, disk: MemoryDisk | None = None, store: FlakyStore | None = None) -> None:
        self.replicas = Replicas(disk)
        self.disk = self.replicas.memory
        self.store = store or FlakyStore(self.replicas.clock)
        self.steps: list[str] = []
        self.repair = ReplicaRepair(
            self.replicas.logs,
            self.replicas.manager,
            Resignations(
                self.store,
                KEYS,
                self.replicas.cache,
                1,
                random.Random(1),
                change_ids(self.replicas.clock),
                self.replicas.state_changes,
            ),
            self.replicas.clock,
            random.Random(1),
            self._run_blocking,
            lambda: checkpoint(self.replicas.logs, {KEY: self.high_watermark}),
            1,
            self.replicas.state_changes,
            OtherReplicas(self.replicas.cache, 1),
        )
        self.replicas.on_failure = self.repair.failed
        self.replicas.on_following = self.repair.copy_missing
        self.tasks = [
            asyncio.create_task(self.repair.quarantine_only_copies()),
            asyncio.create_task(self.repair.resign_failed()),
            asyncio.create_task(self.repair.repair_resigned()),
        ]

    async def _run_blocking(self, work: Callable[[], None]) -> None:
        await asyncio.sleep(0)
        work()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def restart(self) -> "Broker":
        """Restart after a crash of the process."""
        await self.stop()
        again = Broker(self.disk, self.store)
        again.replicas.cache.load(await self.store.snapshot(KEYS.root))
        return again

    @property
    def high_watermark(self) -> int:
        return max((p.high_watermark for p in self.replicas.manager.all()), default=0)

    def holds(self, ranges_to_request: LeaderAndIsr, name: TopicPartition = NAME) -> int:
        return self.store.put(KEYS.leader_and_isr(name), encode_leader_and_isr(ranges_to_request))

    def stored(self) -> LeaderAndIsr:
        return decode_leader_and_isr(self.store.item(KEYS.leader_and_isr(NAME)).value)

    async def has(self, ranges_to_request: LeaderAndIsr) -> Partition:
        """The controller has decided, and this broker has applied the decision."""
        revision = self.holds(ranges_to_request)
        self.replicas.cache.load(await self.store.snapshot(KEYS.root))
        (partition,) = await self.replicas.take(ranges_to_request, revision=revision)
        return partition

    def read(self, partition: Partition) -> TidelogError | None:
        """The answer to a follower that fetches everything."""
        fetch = self.replicas.manager
        try:
            partition.log.read(0, max_bytes=1 << 20, up_to=partition.log.log_end_offset)
        except Exception as error:
            return fetch.replica_failed(partition, error, "read")  # type: ignore[arg-type]
        return None


async def three_records(broker: Broker, ranges_to_request: LeaderAndIsr | None = None) -> Partition:
    partition = await broker.has(ranges_to_request or state())
    commit(partition, *[bytes(100)] * 3)
    return partition


async def three_records_stored() -> Broker:
    broker = Broker()
    await three_records(broker)
    return broker


def append_segments(broker: Broker, partition: Partition) -> list[PurePath]:
    """Appends three segments of one record each, and returns their files."""
    log = broker.replicas.logs.log_of(KEY)
    assert log is not None
    log.update_config(LogConfig(segment_bytes=200))
    for _ in range(3):
        append(partition, bytes(100))
    segments = sorted(path for path in broker.disk.names if path.suffix == SEGMENT.suffix)
    assert len(segments) == 3
    return segments


def flip(broker: Broker, position: int = -1) -> None:
    broker.disk.names[SEGMENT].data[position] ^= 1


@pytest.mark.rule("single-partition-may-fail")
async def test_a_leader_that_finds_damage_stops_leading_at_once() -> None:
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    error = broker.read(partition)
    assert error is not None
    assert error.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.leading is None
    await broker.stop()


@pytest.mark.rule("damaged-replica-resigns-first")
async def test_nothing_is_changed_before_the_store_records_that_the_replica_is_not_intact() -> None:
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    damaged = bytes(broker.disk.names[SEGMENT].data)
    broker.store.disconnect()
    broker.read(partition)
    await asyncio.sleep(3600)
    assert (bytes(broker.disk.names[SEGMENT].data), MARK in broker.disk.names) == (damaged, True)
    broker.store.reconnect()
    await asyncio.sleep(5)
    assert broker.stored().isr[0] == Member(1, NOT_WHOLE)
    assert bytes(broker.disk.names[SEGMENT].data) != damaged
    assert partition.log.log_end_offset == 3
    await broker.stop()


async def test_a_repaired_replica_is_sound_and_follows_the_current_leader() -> None:
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    broker.read(partition)
    await asyncio.sleep(1)
    elected = state(leader=2, epoch=6, isr=(2, 3))
    (partition,) = await broker.replicas.take(elected, revision=broker.holds(elected))
    assert (partition.leader_to_follow, partition.high_watermark) == (2, 3)
    assert partition.fetch_position().fetch_offset == 2
    assert broker.read(partition) is None
    assert MARK not in broker.disk.names
    await broker.stop()


async def test_a_damaged_follower_leaves_the_isr() -> None:
    broker = Broker()
    partition = await three_records(broker)
    followed = state(leader=2, epoch=6)
    partition = await broker.has(followed)
    broker.replicas.manager.replica_failed(partition, LogStorageError(SEGMENT, 5, "append to"))
    assert partition.leader_to_follow == -1
    await asyncio.sleep(1)
    assert broker.stored().isr_ids == {2, 3}
    assert partition.leader_to_follow == 2
    await broker.stop()


async def test_an_election_from_before_the_resignation_comes_too_late() -> None:
    """Its command was under way while the log was cut. In that epoch other replicas rely on what
    this replica held.
    """
    broker = Broker()
    await three_records(broker)
    partition = await broker.has(state(leader=2, epoch=6))
    elected = state(leader=1, epoch=7)
    revision = broker.holds(elected)
    flip(broker)
    broker.read(partition)
    await asyncio.sleep(1)
    assert (partition.in_service, partition.log.log_end_offset) == (True, 3)
    await broker.replicas.take(elected, revision=revision)
    assert partition.leading is None
    await broker.stop()


async def test_a_late_election_of_a_replica_without_earlier_commands_is_ignored() -> None:
    broker = await (await three_records_stored()).restart()
    elected = state(leader=1, epoch=7)
    revision = broker.holds(elected)
    error = LogStorageError(SEGMENT, 5, "append to")
    broker.replicas.manager.log_failed(KEY, error)
    await asyncio.sleep(1)
    result = await broker.replicas.commands.leader_and_isr(command(elected, revision))
    assert (result.partitions[0].error, list(broker.replicas.manager.all())) == (None, [])
    await broker.stop()


async def test_a_new_epoch_of_the_leader_that_it_resigned_to_is_taken() -> None:
    broker = Broker()
    await three_records(broker)
    partition = await broker.has(state(leader=2, epoch=6))
    flip(broker)
    broker.read(partition)
    await asyncio.sleep(1)
    revision = broker.store.item(KEYS.leader_and_isr(NAME)).mod_revision
    await broker.replicas.take(broker.stored(), revision=revision)
    assert (partition.leader_to_follow, partition.leader_epoch) == (2, 7)
    await broker.stop()


async def test_a_full_disk_is_no_damage() -> None:
    broker = Broker()
    partition = await three_records(broker)
    broker.disk.space = 0
    with pytest.raises(LogStorageError) as rejected:
        partition.append([sent()], Acks.LEADER, 1)
    error = broker.replicas.manager.replica_failed(partition, rejected.value)
    assert error.code is ErrorCode.STORAGE_ERROR
    assert partition.leading is not None
    await broker.stop()


async def test_a_replica_out_of_service_takes_no_command_and_reports_why() -> None:
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    broker.store.disconnect()
    broker.read(partition)
    result = await broker.replicas.commands.leader_and_isr(command(state(epoch=7), 90))
    (rejected,) = result.partitions
    assert rejected.error is not None
    assert rejected.error.code is ErrorCode.STORAGE_ERROR
    assert "out of service until it has left the ISR and is repaired" in str(rejected.error)
    assert partition.leading is None
    await broker.stop()


async def test_a_failed_sync_makes_the_replica_resign_and_keeps_writable_data() -> None:
    broker = Broker()
    partition = await three_records(broker)
    log = broker.replicas.logs.log_of(KEY)
    assert log is not None
    broker.disk.fail_sync = True
    with pytest.raises(LogStorageError) as rejected:
        log.flush()
    broker.replicas.manager.log_failed(KEY, rejected.value)
    await asyncio.sleep(0.1)
    broker.disk.fail_sync = False
    await asyncio.sleep(5)
    assert broker.stored().isr[0] == Member(1, NOT_WHOLE)
    assert (partition.in_service, partition.log.log_end_offset) == (True, 3)
    broker.disk.power_failure()
    again = await broker.restart()
    restarted = again.replicas.logs.log_of(KEY)
    assert restarted is not None
    assert restarted.log_end_offset == 3
    await again.stop()


async def test_damage_found_after_a_failed_sync_is_repaired_with_it() -> None:
    """A check of the log was running when the sync failed."""
    broker = Broker()
    partition = await broker.has(state())
    append_segments(broker, partition)
    log = broker.replicas.logs.log_of(KEY)
    assert log is not None
    log.flush()
    flip(broker)
    broker.replicas.manager.log_failed(KEY, LogFailedError(SEGMENT, 5, "sync"))
    broker.replicas.manager.log_unreadable(KEY, LogCorruptError(SEGMENT, 0, "a flipped bit"))
    await asyncio.sleep(5)
    assert partition.in_service
    assert broker.replicas.logs.damaged_batches.of(KEY) == [(0, 1)]
    await broker.stop()


async def test_a_disk_that_keeps_failing_is_retried_less_and_less_often() -> None:
    broker = Broker()
    partition = await three_records(broker)
    log = broker.replicas.logs.log_of(KEY)
    assert log is not None
    broker.disk.fail_sync = True
    with pytest.raises(LogStorageError) as rejected:
        log.flush()
    broker.replicas.manager.log_failed(KEY, rejected.value)
    await asyncio.sleep(3600)
    attempts = [c for c in broker.replicas.events(Kind.REPLICA_REPAIRED) if c.stage is Stage.FAILED]
    assert 3600 / MAX_RETRY_DELAY_S < len(attempts) < 2 * 3600 / MAX_RETRY_DELAY_S + 20
    assert not partition.in_service
    broker.disk.fail_sync = False
    await asyncio.sleep(MAX_RETRY_DELAY_S)
    assert partition.in_service
    await broker.stop()


async def test_a_replica_that_is_removed_during_its_repair_is_forgotten() -> None:
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    broker.store.disconnect()
    broker.read(partition)
    await asyncio.sleep(1)
    broker.replicas.logs.delete(KEY)
    broker.store.reconnect()
    await asyncio.sleep(5)
    assert MARK not in broker.disk.names
    assert not broker.replicas.logs.is_out_of_service(KEY)
    await broker.stop()


@pytest.mark.rule("single-partition-may-fail")
async def test_the_other_replicas_of_the_broker_continue() -> None:
    broker = Broker()
    partition = await three_records(broker)
    (_, sound) = await broker.replicas.take(numbers=(0, 1), revision=500)
    flip(broker)
    broker.store.disconnect()
    broker.read(partition)
    await asyncio.sleep(60)
    append(sound)
    assert sound.leading is not None
    await broker.stop()


async def test_an_unreadable_stored_value_blocks_no_other_replica() -> None:
    """It blocks neither a replica found damaged with it nor a later one."""
    broker = Broker()
    await three_records(broker)
    (_, together, later) = await broker.replicas.take(numbers=(0, 1, 2), revision=500)
    broker.store.put(KEYS.leader_and_isr(NAME), b"not JSON")
    for partition in (together, later):
        broker.holds(state(), partition.name)
    error = LogStorageError(SEGMENT, 5, "append to")
    for key in (KEY, ReplicaKey(TOPIC_ID, 1)):
        broker.replicas.manager.log_failed(key, error)
    await asyncio.sleep(10)
    broker.replicas.manager.log_failed(ReplicaKey(TOPIC_ID, 2), error)
    await asyncio.sleep(10)
    assert (together.in_service, later.in_service) == (True, True)
    assert broker.replicas.logs.is_out_of_service(KEY)
    await broker.stop()


async def resigned_at_start(broker: Broker) -> list[ReplicaKey]:
    damaged = broker.replicas.damaged
    await broker.repair.resign_found(damaged)
    return [replica.key for replica in damaged]


@pytest.mark.rule("damaged-replica-resigns-first")
async def test_a_crash_before_the_resignation_lets_the_next_incarnation_resign() -> None:
    """The log looks sound then: damaged data may be read correctly, or have been cut."""
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    broker.store.disconnect()
    broker.read(partition)
    await asyncio.sleep(1)
    flip(broker)
    broker.store.reconnect()
    again = await broker.restart()
    assert await resigned_at_start(again) == [KEY]
    assert again.stored().isr[0] == Member(1, NOT_WHOLE)
    assert MARK not in again.disk.names
    await again.stop()


@pytest.mark.rule("losses-remembered-across-incarnations")
async def test_a_mark_outlives_any_number_of_incarnations_that_did_not_resign() -> None:
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    broker.store.disconnect()
    broker.read(partition)
    await asyncio.sleep(1)
    broker.store.reconnect()
    for _ in range(3):
        broker = await broker.restart()
        broker.disk.power_failure()
    broker = await broker.restart()
    assert await resigned_at_start(broker) == [KEY]
    await broker.stop()


async def test_damage_found_by_recovery_is_marked_before_it_is_made_unreadable() -> None:
    """A crash right after that leaves a log that looks intact."""
    broker = Broker()
    await three_records(broker)
    flip(broker, 80)
    sealed = await broker.restart()
    again = await sealed.restart()
    assert await resigned_at_start(again) == [KEY]
    await again.stop()


async def test_a_missing_directory_resigns_and_starts_empty() -> None:
    broker = Broker()
    await three_records(broker)
    checkpoint(broker.replicas.logs, {KEY: 3})
    broker.disk.remove_tree(REPLICA)
    again = await broker.restart()
    assert await resigned_at_start(again) == [KEY]
    assert again.stored().isr[0] == Member(1, NOT_WHOLE)
    (partition,) = await again.replicas.take(state(leader=2, epoch=6), revision=900)
    assert partition.log.log_end_offset == 0
    await again.stop()


async def test_a_missing_directory_is_not_forgotten_by_a_checkpoint_before_the_resignation() -> (
    None
):
    broker = Broker()
    await three_records(broker)
    checkpoint(broker.replicas.logs, {KEY: 3})
    broker.disk.remove_tree(REPLICA)
    again = await broker.restart()
    checkpoint(again.replicas.logs, {})
    third = await again.restart()
    assert await resigned_at_start(third) == [KEY]
    await third.stop()


async def test_once_resigned_and_checked_the_next_incarnation_finds_no_mark() -> None:
    broker = Broker()
    await three_records(broker)
    flip(broker, 80)
    again = await broker.restart()
    await resigned_at_start(again)
    checkpoint(again.replicas.logs, {})
    third = await again.restart()
    assert third.replicas.damaged == []
    await third.stop()


async def test_a_log_that_cannot_be_opened_at_the_start_is_repaired_when_possible() -> None:
    broker = Broker()
    await three_records(broker)
    (broker.disk.names[SEGMENT].data).extend(b"half a batch")
    broker.disk.fail_truncate = True
    again = await broker.restart()
    assert await resigned_at_start(again) == [KEY]
    result = await again.replicas.commands.leader_and_isr(command(state(epoch=7), 90))
    assert result.partitions[0].error is not None
    again.disk.fail_truncate = False
    await asyncio.sleep(MAX_RETRY_DELAY_S)
    (partition,) = await again.replicas.take(state(leader=2, epoch=8), revision=900)
    assert partition.log.log_end_offset == 3
    await again.stop()
