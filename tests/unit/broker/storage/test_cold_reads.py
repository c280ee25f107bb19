"""How much is read from the disk, when, and for which request."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePath

import pytest

from tidelog_broker.core.partition.replica_log import ColdRange
from tidelog_broker.log.log_errors import LogStorageError
from tidelog_broker.storage.cold_reads import (
    MAX_AHEAD_BYTES,
    MAX_CONCURRENT_READS,
    PIECE_BYTES,
    ColdReads,
)
from unit.broker.broker_parts import until_idle
from unit.broker.cold_disk import Threads, reading
from unit.broker.fake_log import FakeLog
from unit.broker.log.memory_disk import MemoryDisk

FILE = PurePath("/data/f")
SMALL = 1000


def at(position: int, size: int = SMALL, path: PurePath = FILE) -> ColdRange:
    return ColdRange(path, position, size)


class Reads:
    def __init__(self, pieces: int = 16) -> None:
        self.disk = MemoryDisk()
        self.threads = Threads()
        self.cold_reads = ColdReads(self.disk, self.threads)
        self.log = FakeLog()
        file = self.disk.open(FILE, create=True)
        file.write_at(0, [bytes(pieces * PIECE_BYTES)])
        file.close()

    def begin(self, cold: ColdRange, log: FakeLog | None = None) -> asyncio.Event:
        woken = asyncio.Event()
        self.cold_reads.begin(log or self.log, cold, woken)
        return woken

    async def read(self, cold: ColdRange) -> int:
        """Read until nothing more is read; returns the number of bytes."""
        self.disk.reads.clear()
        self.begin(cold)
        await until_idle()
        await self.threads.end_all()
        return sum(size for _, size in self.disk.reads)


@asynccontextmanager
async def running(pieces: int = 16) -> AsyncIterator[Reads]:
    reads = Reads(pieces)
    try:
        async with reading(reads.cold_reads):
            yield reads
    finally:
        assert reads.disk.open_files == 0


async def test_each_piece_wakes_its_waiters() -> None:
    async with running() as reads:
        first = reads.begin(at(0, 2 * PIECE_BYTES))
        await until_idle()
        assert not first.is_set()
        await reads.threads.end()
        assert first.is_set()
        second = reads.begin(at(PIECE_BYTES, PIECE_BYTES))
        await reads.threads.end()
        assert second.is_set()
        assert reads.disk.reads == [(FILE, PIECE_BYTES)] * 2


async def test_nothing_smaller_than_a_piece_is_read_and_nothing_beyond_the_end() -> None:
    async with running(pieces=2) as reads:
        assert await reads.read(at(0)) == PIECE_BYTES
        assert await reads.read(at(2 * PIECE_BYTES - SMALL, 5 * PIECE_BYTES)) == PIECE_BYTES
        assert len(reads.cold_reads) == 0


async def test_one_range_of_a_log_is_read_at_a_time() -> None:
    async with running() as reads:
        reads.begin(at(0))
        other = reads.begin(at(8 * PIECE_BYTES))
        await until_idle()
        assert len(reads.threads.running) == 1
        await reads.threads.end()
        assert other.is_set()
        assert reads.threads.running == []


async def test_a_bounded_number_of_logs_is_read_at_once_and_the_others_follow() -> None:
    async with running() as reads:
        logs = [FakeLog() for _ in range(MAX_CONCURRENT_READS + 1)]
        woken = [reads.begin(at(0, 2 * PIECE_BYTES), log) for log in logs]
        await until_idle()
        assert len(reads.threads.running) == MAX_CONCURRENT_READS
        for _ in range(MAX_CONCURRENT_READS + 1):
            await reads.threads.end()
        assert all(event.is_set() for event in woken)


async def test_sequential_readers_get_growing_read_ahead() -> None:
    async with running(pieces=32) as reads:
        position, sizes = 0, []
        for _ in range(4):
            sizes.append(await reads.read(at(position, PIECE_BYTES)))
            position += sizes[-1]
        most = MAX_AHEAD_BYTES + PIECE_BYTES
        assert sizes == [PIECE_BYTES, 3 * PIECE_BYTES, most, most]


async def test_readers_of_one_log_are_distinguished_by_their_positions() -> None:
    async with running(pieces=32) as reads:
        await reads.read(at(0, PIECE_BYTES))
        await reads.read(at(16 * PIECE_BYTES, PIECE_BYTES))
        assert await reads.read(at(PIECE_BYTES, PIECE_BYTES)) == 3 * PIECE_BYTES
        assert await reads.read(at(17 * PIECE_BYTES, PIECE_BYTES)) == 3 * PIECE_BYTES


async def test_nothing_is_read_ahead_while_others_wait() -> None:
    async with running() as reads:
        await reads.read(at(0, PIECE_BYTES))
        for _ in range(MAX_CONCURRENT_READS):
            reads.begin(at(0), FakeLog())
        reads.disk.reads.clear()
        reads.begin(at(PIECE_BYTES, PIECE_BYTES))
        await until_idle()
        await reads.threads.end_all()
        assert len(reads.disk.reads) == MAX_CONCURRENT_READS + 1


async def test_data_that_was_read_and_is_cold_again_may_be_waited_for_once() -> None:
    async with running() as reads:
        assert not reads.cold_reads.has_read(reads.log, at(0))
        await reads.read(at(0, 2 * PIECE_BYTES))
        assert not reads.cold_reads.has_read(reads.log, at(2 * PIECE_BYTES))
        assert reads.cold_reads.has_read(reads.log, at(PIECE_BYTES))
        assert not reads.cold_reads.has_read(reads.log, at(PIECE_BYTES))


async def test_data_already_read_counts_while_the_rest_is_being_read() -> None:
    async with running() as reads:
        reads.begin(at(0, 2 * PIECE_BYTES))
        await until_idle()
        await reads.threads.end()
        assert not reads.cold_reads.has_read(reads.log, at(PIECE_BYTES))
        assert reads.cold_reads.has_read(reads.log, at(0))
        await reads.threads.end_all()


async def test_a_failed_read_is_reported_once_and_then_retried() -> None:
    async with running() as reads:
        woken = reads.begin(at(0))
        await until_idle()
        reads.disk.failing_reads = 1
        await reads.threads.end()
        assert woken.is_set()
        with pytest.raises(LogStorageError, match="cannot read /data/f"):
            reads.cold_reads.has_read(reads.log, at(0))
        assert not reads.cold_reads.has_read(reads.log, at(0))
        assert await reads.read(at(0)) == PIECE_BYTES


async def test_a_file_deleted_meanwhile_harms_no_reader() -> None:
    async with running() as reads:
        woken = reads.begin(at(0))
        await until_idle()
        reads.disk.remove(FILE)
        await reads.threads.end()
        assert woken.is_set()
        assert not reads.cold_reads.has_read(FakeLog(), at(0))


async def test_other_work_runs_in_the_thread_instead_of_a_read() -> None:
    async with running() as reads:
        done: list[str] = []
        cold = at(0)._replace(work=lambda: done.append("work"))
        woken = reads.begin(cold)
        await until_idle()
        assert (done, woken.is_set()) == ([], False)
        await reads.threads.end()
        assert (done, woken.is_set(), reads.disk.reads) == (["work"], True, [])
        # The caller never does it itself, and none of the data has been read.
        assert not reads.cold_reads.has_read(reads.log, cold)
        assert not reads.cold_reads.has_read(reads.log, at(0))


async def test_other_work_that_fails_is_reported_once() -> None:
    async with running() as reads:

        def fail() -> None:
            raise FileNotFoundError(errno.ENOENT, "it is gone", str(FILE))

        cold = at(0)._replace(work=fail)
        reads.begin(cold)
        await until_idle()
        await reads.threads.end()
        with pytest.raises(LogStorageError, match="cannot read /data/f"):
            reads.cold_reads.has_read(reads.log, cold)
        assert not reads.cold_reads.has_read(reads.log, cold)


async def test_a_stop_waits_for_no_thread() -> None:
    reads = Reads()
    task = asyncio.create_task(reads.cold_reads.run())
    reads.begin(at(0))
    await until_idle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reads.threads.running[0].cancelled()


async def test_work_is_done_once_whatever_its_size() -> None:
    runs = 0

    def work() -> None:
        nonlocal runs
        runs += 1

    async with running() as reads:
        assert await reads.read(ColdRange(FILE, 0, 3 * PIECE_BYTES, work)) == 0
    assert runs == 1
