"""Group commit: which logs are synced when, and what is told of it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import PurePath

from tidelog_broker.log.errors import LogError
from tidelog_broker.partition.partition import Partition
from tidelog_broker.storage.log_syncer import SYNCS_AT_ONCE, LogSyncer
from unit.broker.broker_parts import KEY, Replicas, append, settled
from unit.broker.fake_log import state
from unit.broker.log.memory_disk import MemoryDisk, MemoryFile

SYNCED = {"durability": "synced"}


class Syncs:
    """Syncs that run until the test ends them, oldest first."""

    def __init__(self) -> None:
        self.running: list[asyncio.Future[None]] = []
        self.done = 0

    async def run_blocking(self, work: Callable[[], None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running.append(future)
        await future
        work()
        self.done += 1

    async def end(self) -> None:
        self.running.pop(0).set_result(None)
        await settled()


class Broker:
    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.replicas = Replicas(disk)
        self.syncs = Syncs()
        self.told: list[str] = []
        self.syncer = LogSyncer(self.replicas.logs, self.syncs.run_blocking, self)
        self.replicas.listener.sync_needed = self.syncer.note  # type: ignore[method-assign]

    def log_synced(self, partition: Partition) -> None:
        partition.log_synced()
        self.told.append(f"{partition.name.partition} synced to {partition.counted_end}")

    def sync_put_off(self, partition: Partition, error: LogError) -> None:
        self.told.append(f"{partition.name.partition} put off: {error}")

    def sync_failed(self, partition: Partition, error: LogError) -> None:
        self.told.append(f"{partition.name.partition} failed: {error}")

    async def lead(self, number: int = 0) -> Partition:
        (partition,) = await self.replicas.take(
            state(isr=(1,), replicas=(1,), min_isr=1), numbers=[number], config=SYNCED
        )
        return partition


@asynccontextmanager
async def running(disk: MemoryDisk | None = None) -> AsyncIterator[Broker]:
    broker = Broker(disk)
    task = asyncio.create_task(broker.syncer.run())
    try:
        yield broker
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_an_append_is_synced_at_once_and_then_committed() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        await settled()
        assert partition.high_watermark == 0
        await broker.syncs.end()
        assert partition.high_watermark == 1
        assert broker.told == ["0 synced to 1"]


async def test_what_comes_during_a_sync_gathers_for_one_more() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        await settled()
        for _ in range(20):
            append(partition)
            await settled()
        assert len(broker.syncs.running) == 1
        await broker.syncs.end()
        assert partition.high_watermark == 1
        await broker.syncs.end()
        assert (partition.high_watermark, broker.syncs.done) == (21, 2)


async def test_what_has_nothing_new_is_not_synced() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        await settled()
        await broker.syncs.end()
        broker.syncer.note(partition)
        await settled()
        assert broker.syncs.running == []
        assert not broker.syncer.is_pending(partition)


async def test_logs_are_synced_side_by_side_up_to_a_bound_and_then_by_turns() -> None:
    async with running() as broker:
        partitions = [await broker.lead(number) for number in range(SYNCS_AT_ONCE + 2)]
        for partition in partitions:
            append(partition)
        await settled()
        assert len(broker.syncs.running) == SYNCS_AT_ONCE
        append(partitions[0])
        while broker.syncs.running:
            await broker.syncs.end()
        last = SYNCS_AT_ONCE + 1
        assert broker.told[:2] == ["0 synced to 1", "1 synced to 1"]
        assert broker.told[-2:] == [f"{last} synced to 1", "0 synced to 2"]


async def test_a_log_is_pending_until_its_sync_is_over() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        assert broker.syncer.is_pending(partition)
        await settled()
        assert broker.syncer.is_pending(partition)
        await broker.syncs.end()
        assert not broker.syncer.is_pending(partition)


async def test_a_sync_that_fails_is_told_and_commits_nothing() -> None:
    disk = MemoryDisk()
    async with running(disk) as broker:
        partition = await broker.lead()
        append(partition)
        await settled()
        disk.fail_sync = True
        await broker.syncs.end()
        (told,) = broker.told
        assert told.startswith("0 failed: cannot sync the log")
        assert partition.high_watermark == 0
        assert not broker.syncer.is_pending(partition)


class CrowdedDisk(MemoryDisk):
    """No more files can be opened while it is `full`."""

    full = False

    def open(self, path: PurePath, *, create: bool = False) -> MemoryFile:
        if self.full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().open(path, create=create)


async def test_a_log_that_cannot_be_opened_for_its_sync_is_tried_again() -> None:
    disk = CrowdedDisk()
    async with running(disk) as broker:
        partition = await broker.lead()
        append(partition)
        disk.full = True
        await settled()
        assert not broker.syncer.is_pending(partition)
        disk.full = False
        await asyncio.sleep(1)
        await broker.syncs.end()
        assert partition.high_watermark == 1


async def test_a_log_that_goes_away_during_its_sync_is_forgotten() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        await settled()
        append(partition)
        broker.replicas.logs.set_aside(KEY)
        await broker.syncs.end()
        await settled()
        assert not broker.syncer.is_pending(partition)
        assert broker.syncs.running == []
