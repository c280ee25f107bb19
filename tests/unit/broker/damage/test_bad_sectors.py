"""A sector that the disk cannot read costs only the batches on it. A disk that rejects writes
costs nothing.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from tidelog.errors import RecordsDamagedError
from tidelog.state_changes.event import Kind
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.damage.batch_quarantine import UNREADABLE_PAUSE_S
from tidelog_broker.log.log_errors import LogError, LogFailedError, LogUnreadableError
from tidelog_runtime.metadata.schema import NOT_WHOLE, Member
from unit.broker.broker_parts import KEY, append, commit
from unit.broker.damage.test_only_copies import ALONE, consume, led_by_another
from unit.broker.damage.test_replica_repair import (
    SEGMENT,
    Broker,
    flip,
    resigned_at_start,
    three_records,
)
from unit.broker.fake_log import state
from unit.broker.log.memory_disk import MemoryFile

RECORD = bytes(2000)
# In the second of three records.
BAD_AT = 3000


async def three_alone() -> tuple[Broker, Partition]:
    broker = Broker()
    partition = await broker.has(ALONE)
    append(partition, *[RECORD] * 3)
    return broker, partition


def damaged_range(partition: Partition, offset: int) -> tuple[int, int]:
    """The error that a consumer gets when it reads there."""
    with pytest.raises(RecordsDamagedError) as damaged:
        consume(partition, offset)
    return damaged.value.first_offset, damaged.value.next_offset


async def test_the_only_copy_stays_leader_and_loses_only_the_batch_on_a_bad_sector() -> None:
    broker, partition = await three_alone()
    broker.disk.spoil(SEGMENT, BAD_AT)
    broker.read(partition)
    await asyncio.sleep(2 * UNREADABLE_PAUSE_S)
    assert partition.leading is not None
    assert broker.stored() == ALONE
    assert consume(partition, 0) == [0]
    assert damaged_range(partition, 1) == (1, 2)
    append(partition, b"more")
    assert consume(partition, 2) == [2, 3]
    (event,) = broker.replicas.events(Kind.BATCH_DAMAGED)
    assert event.details["first_offset"] == 1
    await broker.stop()


async def test_the_next_incarnation_reads_the_data_copied_off_the_bad_sector() -> None:
    broker, partition = await three_alone()
    broker.disk.spoil(SEGMENT, BAD_AT)
    broker.read(partition)
    await asyncio.sleep(2 * UNREADABLE_PAUSE_S)
    again = await broker.restart()
    assert again.replicas.damaged == []
    assert again.replicas.logs.damaged_batches.of(KEY) == [(1, 2)]
    await again.stop()


async def test_unreadable_segments_delay_no_other_damage() -> None:
    broker, partition = await three_alone()
    for number in range(1, 20):
        unreadable = LogUnreadableError(SEGMENT.with_name(f"{number}.log"), errno.EIO, "read")
        broker.repair.failed(KEY, unreadable)
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    broker.read(partition)
    await asyncio.sleep(1)
    assert broker.replicas.logs.damaged_batches.of(KEY) == [(1, 2)]
    await broker.stop()


async def test_a_sector_that_is_readable_a_moment_later_costs_nothing() -> None:
    broker, partition = await three_alone()
    broker.disk.spoil(SEGMENT, BAD_AT)
    broker.read(partition)
    broker.disk.names[SEGMENT].bad.clear()
    await asyncio.sleep(2 * UNREADABLE_PAUSE_S)
    assert consume(partition, 0) == [0, 1, 2]
    assert broker.replicas.events(Kind.BATCH_DAMAGED) == []
    await broker.stop()


async def test_a_missing_segment_of_the_only_copy_is_one_unreadable_range() -> None:
    broker, partition = await three_alone()
    broker.disk.remove(SEGMENT)
    broker.replicas.logs._files.forget(SEGMENT)
    broker.read(partition)
    await asyncio.sleep(2 * UNREADABLE_PAUSE_S)
    append(partition, b"more")
    assert damaged_range(partition, 0) == (0, 3)
    assert consume(partition, 3) == [3]
    await broker.stop()


async def test_a_start_reads_around_a_bad_sector_of_the_only_copy() -> None:
    broker, _ = await three_alone()
    broker.disk.spoil(SEGMENT, BAD_AT)
    again = await broker.restart()
    (damaged,) = again.replicas.damaged
    assert damaged.unless_sole
    again.repair.keep_only_copies([damaged])
    partition = await again.has(replace(ALONE, leader_epoch=ALONE.leader_epoch + 1))
    assert consume(partition, 0) == [0]
    assert damaged_range(partition, 1) == (1, 2)
    assert consume(partition, 2) == [2]
    await again.stop()


async def test_a_follower_copies_the_batch_of_a_bad_sector_and_keeps_those_behind() -> None:
    broker = Broker()
    partition = await broker.has(state())
    commit(partition, *[RECORD] * 3)
    broker.disk.spoil(SEGMENT, BAD_AT)
    broker.read(partition)
    await asyncio.sleep(1)
    assert broker.stored().isr[0].broker_epoch == NOT_WHOLE
    assert not broker.replicas.logs.is_out_of_service(KEY)
    await broker.has(led_by_another(state()))
    assert partition.fetch_position().fetch_offset == 1
    assert partition.log.log_end_offset == 3
    await broker.stop()


async def test_files_beside_the_segments_on_bad_sectors_are_rebuilt() -> None:
    broker, _ = await three_alone()
    for path in list(broker.disk.names):
        if path.parent == SEGMENT.parent and path != SEGMENT:
            broker.disk.spoil(path, 0)
    again = await broker.restart()
    assert again.replicas.damaged == []
    partition = await again.has(replace(ALONE, leader_epoch=ALONE.leader_epoch + 1))
    assert consume(partition, 0) == [0, 1, 2]
    await again.stop()


async def test_a_write_rejected_by_the_disk_of_the_only_copy_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, partition = await three_alone()

    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(SEGMENT))

    with monkeypatch.context() as mounted:
        mounted.setattr(MemoryFile, "write_at", read_only)
        with pytest.raises(LogError) as rejected:
            append(partition, b"x")
        error = broker.replicas.manager.replica_failed(partition, rejected.value)
        assert error.retriable
        await asyncio.sleep(5)
        assert consume(partition, 0) == [0, 1, 2]
        assert broker.replicas.manager.disk.of(KEY) is not None
    assert broker.stored() == ALONE
    append(partition, b"x")
    assert consume(partition, 3) == [3]
    await broker.stop()


async def test_a_leader_whose_disk_rejects_writes_resigns_where_another_can_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    partition = await broker.has(state())

    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(SEGMENT))

    with monkeypatch.context() as mounted:
        mounted.setattr(MemoryFile, "write_at", read_only)
        with pytest.raises(LogError) as rejected:
            append(partition, b"x")
        broker.replicas.manager.replica_failed(partition, rejected.value)
        assert partition.leading is None
    await asyncio.sleep(1)
    assert broker.stored() != state()
    await broker.stop()


async def test_damage_that_the_disk_did_not_let_mark_is_marked_later() -> None:
    """Its next process takes for written what the failed sync left in memory."""
    broker = Broker()
    partition = await three_records(broker)
    broker.store.disconnect()  # so that it does not resign, and is not repaired
    broker.disk.fail_sync = True
    broker.replicas.manager.log_failed(KEY, LogFailedError(SEGMENT, errno.EIO, "sync"))
    await asyncio.sleep(10)
    broker.disk.fail_sync = False
    await asyncio.sleep(10)
    assert partition.leading is None
    broker.store.reconnect()
    again = await broker.restart()
    assert await resigned_at_start(again) == [KEY]
    await again.stop()


@pytest.mark.parametrize(
    ("damage", "during_check"), [("sector", False), ("sector", True), ("bit", True)]
)
async def test_no_batch_is_sealed_once_another_replica_has_joined(
    damage: str,
    during_check: bool,
) -> None:
    """The leader resigns instead, and its repair forgets what was found meanwhile."""
    broker, partition = await three_alone()
    joins = broker.has(state(isr=(1, 2), replicas=(1, 2), min_isr=1))
    if damage == "sector":
        broker.disk.spoil(SEGMENT, BAD_AT)
    else:
        flip(broker, BAD_AT)
    run_blocking = broker._run_blocking

    async def join_and_run(work: Callable[[], None]) -> None:
        broker.repair._quarantine._run_blocking = run_blocking
        await run_blocking(work)
        await joins

    if during_check:
        broker.repair._quarantine._run_blocking = join_and_run
        broker.read(partition)
    else:
        broker.read(partition)
        await joins
    await asyncio.sleep(2 * UNREADABLE_PAUSE_S)
    assert broker.stored().isr == (Member(1, NOT_WHOLE), Member(2, 102))
    assert broker.replicas.events(Kind.REPLICA_REPAIRED) != []
    assert [str(path) for path in broker.disk.names if str(path).endswith(".tmp")] == []
    assert len(broker.replicas.logs.damaged_batches.of(KEY)) == 1
    await broker.stop()
