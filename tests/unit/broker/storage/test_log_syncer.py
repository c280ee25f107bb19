"""Group commit: which logs are synced when, and what is reported about it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import PurePath

from simulation.disk import os_error
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.storage.log_syncer import HANG_CHECKS, MAX_CONCURRENT_SYNCS, LogSyncer
from unit.broker.broker_parts import KEY, Replicas, append, until_idle
from unit.broker.fake_log import state
from unit.broker.log.memory_disk import MemoryDisk, MemoryFile

SYNCED = {"durability": "synced"}


class Syncs:
    """The jobs of threads. The test ends each one, oldest first."""

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
        await until_idle()


class SteppingClock:
    """A clock that advances by a fixed time at each reading, as before and after a thread's
    work.
    """

    step_ms = 0

    def __init__(self) -> None:
        self._now_ms = 0

    def monotonic_ms(self) -> int:
        self._now_ms += self.step_ms
        return self._now_ms

    def wall_ms(self) -> int:
        return self._now_ms


class Broker:
    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.replicas = Replicas(disk)
        self.syncs = Syncs()
        self.results: list[str] = []
        self.clock = SteppingClock()
        self.syncer = LogSyncer(self.replicas.logs, self.syncs.run_blocking, self.clock, self)
        self.replicas.listener.sync_needed = self.syncer.note  # type: ignore[method-assign]

    def log_synced(self, partition: Partition) -> None:
        partition.log_synced()
        self.results.append(f"{partition.name.partition} synced to {partition.counted_end}")

    def sync_delayed(self, partition: Partition, error: LogError) -> None:
        self.results.append(f"{partition.name.partition} delayed: {error}")

    def sync_failed(self, partition: Partition, error: LogError) -> None:
        self.results.append(f"{partition.name.partition} failed: {error}")

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
        await until_idle()
        assert partition.high_watermark == 0
        await broker.syncs.end()
        assert partition.high_watermark == 1
        assert broker.results == ["0 synced to 1"]


async def test_appends_during_a_sync_share_the_next_one() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        await until_idle()
        for _ in range(20):
            append(partition)
            await until_idle()
        assert len(broker.syncs.running) == 1
        await broker.syncs.end()
        assert partition.high_watermark == 1
        await broker.syncs.end()
        assert (partition.high_watermark, broker.syncs.done) == (21, 2)


async def test_an_unchanged_log_is_not_synced() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        await until_idle()
        await broker.syncs.end()
        broker.syncer.note(partition)
        await until_idle()
        assert broker.syncs.running == []
        assert not broker.syncer.is_pending(partition)


async def grown(broker: Broker, count: int) -> list[Partition]:
    """All grow in the same step."""
    partitions = [await broker.lead(number) for number in range(count)]
    for partition in partitions:
        append(partition)
    await until_idle()
    return partitions


async def all_end(broker: Broker) -> None:
    while broker.syncs.running:
        await broker.syncs.end()


async def slow(broker: Broker) -> Partition:
    """One slow sync shows that its disk is slow from now on."""
    broker.clock.step_ms = 1_000
    (partition,) = await grown(broker, 1)
    await all_end(broker)
    return partition


async def test_logs_that_grow_together_share_a_thread() -> None:
    async with running() as broker:
        partitions = await grown(broker, 4)
        assert len(broker.syncs.running) == 1
        assert all(map(broker.syncer.is_pending, partitions))
        await broker.syncs.end()
        assert broker.results == [f"{number} synced to 1" for number in range(4)]
        assert len(broker.syncer) == 0


async def test_logs_that_grow_during_a_sync_take_another_thread() -> None:
    async with running() as broker:
        await grown(broker, 2)
        append(await broker.lead(2))
        await until_idle()
        assert len(broker.syncs.running) == 2


async def test_on_a_slow_disk_each_log_has_a_thread_of_its_own() -> None:
    async with running() as broker:
        await slow(broker)
        await grown(broker, 4)
        assert len(broker.syncs.running) == 4


async def test_logs_of_a_late_thread_get_their_own_threads() -> None:
    async with running() as broker:
        await grown(broker, 4)
        broker.clock.step_ms = 1_000
        await broker.syncs.end()
        assert len(broker.syncs.running) == 3
        assert broker.results == []
        await all_end(broker)
        assert broker.results == [f"{number} synced to 1" for number in range(4)]


async def test_one_thread_takes_at_most_half_of_the_concurrently_synced_logs() -> None:
    async with running() as broker:
        await grown(broker, MAX_CONCURRENT_SYNCS + 1)
        assert len(broker.syncs.running) == 2
        await all_end(broker)
        assert len(broker.results) == MAX_CONCURRENT_SYNCS + 1


async def test_a_log_that_is_set_aside_holds_up_no_other_of_its_thread() -> None:
    async with running() as broker:
        first, second = await grown(broker, 2)
        append(second)
        broker.replicas.logs.set_aside(first.key)
        await all_end(broker)
        assert second.high_watermark == 2
        assert not any(map(broker.syncer.is_pending, (first, second)))


async def test_a_disk_that_is_fast_again_has_logs_share_threads_again() -> None:
    async with running() as broker:
        partition = await slow(broker)
        broker.clock.step_ms = 0
        for _ in range(100):
            append(partition)
            await until_idle()
            await all_end(broker)
        await grown(broker, 4)
        assert len(broker.syncs.running) == 1


async def test_concurrent_syncs_are_bounded_and_then_take_turns() -> None:
    async with running() as broker:
        await slow(broker)
        broker.results.clear()
        partitions = await grown(broker, MAX_CONCURRENT_SYNCS + 2)
        assert len(broker.syncs.running) == MAX_CONCURRENT_SYNCS
        append(partitions[0])
        await all_end(broker)
        last = MAX_CONCURRENT_SYNCS + 1
        assert broker.results[:2] == ["0 synced to 2", "1 synced to 1"]
        assert broker.results[-2:] == [f"{last} synced to 1", "0 synced to 3"]


class BadSpot(MemoryDisk):
    """Only the next sync fails, where requested."""

    fail_next = False

    def check_sync(self) -> None:
        if self.fail_next:
            self.fail_next = False
            raise os_error(errno.EIO)


async def test_logs_of_one_thread_fail_each_by_itself() -> None:
    disk = BadSpot()
    async with running(disk) as broker:
        first, second = await grown(broker, 2)
        disk.fail_next = True
        await broker.syncs.end()
        failed, synced = broker.results
        assert failed.startswith("0 failed: cannot sync the log")
        assert synced == "1 synced to 1"
        assert (first.high_watermark, second.high_watermark) == (0, 1)


async def test_a_log_is_pending_until_its_sync_is_over() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        assert broker.syncer.is_pending(partition)
        await until_idle()
        assert broker.syncer.is_pending(partition)
        await broker.syncs.end()
        assert not broker.syncer.is_pending(partition)


async def test_a_failed_sync_is_reported_and_commits_nothing() -> None:
    disk = MemoryDisk()
    async with running(disk) as broker:
        partition = await broker.lead()
        append(partition)
        await until_idle()
        disk.fail_sync = True
        await broker.syncs.end()
        (result,) = broker.results
        assert result.startswith("0 failed: cannot sync the log")
        assert partition.high_watermark == 0
        assert not broker.syncer.is_pending(partition)


class CrowdedDisk(MemoryDisk):
    """No more files can be opened while it is `full`."""

    full = False

    def open(self, path: PurePath, *, create: bool = False) -> MemoryFile:
        if self.full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().open(path, create=create)


async def test_a_log_that_cannot_be_opened_for_its_sync_is_retried() -> None:
    disk = CrowdedDisk()
    async with running(disk) as broker:
        partition = await broker.lead()
        append(partition)
        disk.full = True
        await until_idle()
        assert not broker.syncer.is_pending(partition)
        # The end of this attempt does not end the delay.
        assert [result.split()[1] for result in broker.results] == ["synced", "delayed:"]
        disk.full = False
        await asyncio.sleep(1)
        await broker.syncs.end()
        assert partition.high_watermark == 1


async def test_a_log_removed_during_its_sync_is_forgotten() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        await until_idle()
        append(partition)
        broker.replicas.logs.set_aside(KEY)
        await broker.syncs.end()
        await until_idle()
        assert not broker.syncer.is_pending(partition)
        assert broker.syncs.running == []


async def test_a_sync_that_does_not_return_is_reported_until_it_returns() -> None:
    async with running() as broker:
        partition = await broker.lead()
        append(partition)
        await until_idle()
        for _ in range(HANG_CHECKS - 1):
            assert not broker.syncer.check_hangs()
        assert broker.results == []
        for _ in range(2):
            assert broker.syncer.check_hangs()
        hangs = "0 delayed: a sync of orders/0 has not returned for 10 s or longer; check the disk"
        assert [result.startswith(hangs) for result in broker.results] == [True, True]
        await broker.syncs.end()
        assert broker.results[2:] == ["0 synced to 1"]


async def test_a_sync_that_follows_a_slow_one_does_not_hang() -> None:
    async with running() as broker:
        partition = await broker.lead()
        for _ in range(3):
            append(partition)
            await until_idle()
            for _ in range(HANG_CHECKS - 1):
                broker.syncer.check_hangs()
            await broker.syncs.end()
        assert broker.results == ["0 synced to 1", "0 synced to 2", "0 synced to 3"]


async def test_a_slow_disk_that_returns_from_each_file_does_not_hang() -> None:
    """A sync of one log syncs its segments, its epochs and its directory one after the other."""
    async with running() as broker:
        partition = await broker.lead()
        log = partition.log
        assert isinstance(log, Log)
        ticket = log.begin_flush()
        assert ticket is not None
        log.begin_flush = lambda: ticket  # type: ignore[method-assign]
        append(partition)
        await until_idle()
        for _ in range(3):
            for _ in range(HANG_CHECKS - 1):
                assert not broker.syncer.check_hangs()
            ticket.steps_done += 1
        assert broker.results == []
        for _ in range(HANG_CHECKS):
            hangs = broker.syncer.check_hangs()
        assert hangs
        assert "0 delayed: a sync of orders/0 has not returned" in broker.results[0]


async def test_logs_that_wait_for_hanging_syncs_hang_as_well() -> None:
    async with running() as broker:
        await grown(broker, 2 * MAX_CONCURRENT_SYNCS)
        for _ in range(HANG_CHECKS):
            broker.syncer.check_hangs()
        assert len(broker.results) == 2 * MAX_CONCURRENT_SYNCS


async def test_a_log_that_waits_for_hanging_syncs_is_reported_once() -> None:
    async with running() as broker:
        waiting = (await grown(broker, MAX_CONCURRENT_SYNCS + 1))[-1]
        for _ in range(HANG_CHECKS + 1):
            broker.syncer.check_hangs()
        broker.syncer.note(waiting)
        broker.syncer.check_hangs()
        reported = [each for each in broker.results if each.startswith(f"{MAX_CONCURRENT_SYNCS} ")]
        assert len(reported) == 1
        assert "it waits for 8 syncs that have not returned for 10 s" in reported[0]
