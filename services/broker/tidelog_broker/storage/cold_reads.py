"""Reads data that is only on disk into the page cache, in threads, so that the event loop never
waits for it (rule `disk-reads-off-event-loop`).

The data that a fetch lacks is read here one piece at a time, and discarded: it is in the page cache
then. Each piece wakes the waiting fetches, which try again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TypeVar
from weakref import WeakKeyDictionary

from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.replica_log import ColdDataError, ColdRange, ReplicaLog
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log_errors import read_failure

# Concurrent reads. Each needs memory for one piece.
MAX_CONCURRENT_READS = 4
# The usual size of a fetch from one partition; no smaller read is made.
PIECE_BYTES = 1 << 20
# Read-ahead beyond the request, for a sequential reader, and only while no other one waits.
MAX_AHEAD_BYTES = 4 << 20
# A read that is longer ago was probably requested by another reader.
REMEMBERED_S = 5.0
# Readers of one log that are distinguished, by their positions.
MAX_READERS = 4

T = TypeVar("T")


@dataclass(slots=True)
class _Reading:
    """A part of a file that is read: `start` to `position` is done, as far as it still counts, up
    to `end`.

    - `size`: of the entire part.
    - `error`: why it cannot be read from `position` on.
    - `work`: what is done instead of reading; see `ColdRange`.
    """

    path: PurePath
    start: int
    position: int
    end: int
    size: int
    error: OSError | None = None
    work: Callable[[], None] | None = None
    read_at_s: float = 0.0  # time of the loop

    def has_read(self, cold: ColdRange, now_s: float) -> bool:
        """Returns whether the beginning of `cold` was recently read, or failed with `error`."""
        if now_s - self.read_at_s > REMEMBERED_S or (self.work is None) != (cold.work is None):
            return False
        end = self.position if self.error is None else self.end
        return cold.path == self.path and self.start <= cold.position < end

    def is_continued_by(self, cold: ColdRange) -> bool:
        """Returns whether `cold` continues here. The kernel may have read a little more."""
        is_read = self.work is None and cold.work is None
        is_near = 0 <= cold.position - self.position <= PIECE_BYTES
        return is_read and is_near and cold.path == self.path


@dataclass(slots=True)
class _ColdLog:
    now: _Reading | None = None
    before: deque[_Reading] = field(default_factory=lambda: deque(maxlen=MAX_READERS))
    waiting: dict[asyncio.Event, None] = field(default_factory=dict)

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for woken in waiting:
            woken.set()


class _FilePart:
    """One piece of a file. The file is opened only when it is read, because it may be gone by
    then."""

    def __init__(self, disk: Disk, reading: _Reading) -> None:
        self._disk = disk
        self._path = reading.path
        self._position = reading.position
        self._size = min(PIECE_BYTES, reading.end - reading.position)
        self.is_last = False
        self.end = reading.position + self._size

    def run(self) -> None:
        """Blocks; raises `OSError`."""
        file = self._disk.open(self._path)
        try:
            self.is_last = len(file.read_at(self._size, self._position)) < self._size
        finally:
            file.close()


class ColdReads:
    """Reads the parts that `begin` has queued, while `run` runs.

    It reads one part of each log at a time, and at most MAX_CONCURRENT_READS parts
    concurrently; logs take turns."""

    def __init__(self, disk: Disk, run_blocking: RunBlocking) -> None:
        self._disk = disk
        self._run_blocking = run_blocking
        self._logs: WeakKeyDictionary[ReplicaLog, _ColdLog] = WeakKeyDictionary()
        self._queue: deque[ReplicaLog] = deque()
        self._running = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Returns how many logs are being read."""
        return len(self._queue) + self._running

    def has_read(self, log: ReplicaLog, cold: ColdRange) -> bool:
        """Returns whether the beginning of `cold` was recently read, and has left the page cache
        again.

        Then the caller may wait for the disk, once: a cache that evicts too early would starve it.
        Raises `LogStorageError` if it could not be read."""
        known = self._logs.get(log)
        if known is None:
            return False
        read = [*known.before] if known.now is None else [*known.before, known.now]
        now_s = asyncio.get_running_loop().time()
        found = next((reading for reading in read if reading.has_read(cold, now_s)), None)
        if found is None:
            return False
        if found.error is not None:
            known.before.remove(found)
            raise read_failure(found.error, cold.path, "read") from found.error
        found.start = found.position
        return True

    async def until_cached(self, log: ReplicaLog, read: Callable[[bool], T]) -> T:
        """Returns the result of `read`, which is called until it does not raise `ColdDataError`.

        Its argument is whether it may wait for the disk. Raises `LogError`."""
        waits = False
        while True:
            try:
                return read(waits)
            except ColdDataError as error:
                cold = error.cold
            waits = await self.load(log, cold)

    async def load(self, log: ReplicaLog, cold: ColdRange) -> bool:
        """Waits until more of this log has been read. Returns whether the caller may wait for the
        disk instead, as `has_read` does."""
        if self.has_read(log, cold):
            return True
        woken = asyncio.Event()
        self.begin(log, cold, woken)
        await woken.wait()
        return False

    def begin(self, log: ReplicaLog, cold: ColdRange, woken: asyncio.Event) -> None:
        """Queues a read. Sets `woken` once, when more of this log has been read or cannot be."""
        known = self._logs.setdefault(log, _ColdLog())
        known.waiting[woken] = None
        if known.now is None:
            is_sequential = len(self) < MAX_CONCURRENT_READS
            known.now = _new_reading(cold, known.before, is_sequential=is_sequential)
            self._queue.append(log)
            self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as pieces:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue and self._running < MAX_CONCURRENT_READS:
                    self._running += 1
                    pieces.create_task(self._read_piece(self._queue.popleft()))

    async def _read_piece(self, log: ReplicaLog) -> None:
        known = self._logs[log]
        reading = known.now
        assert reading is not None
        piece = _FilePart(self._disk, reading)
        try:
            await self._run_blocking(reading.work or piece.run)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and reading.work is None:
                reading.position = reading.end  # reading the log reports the error, if it is one
            else:
                reading.error = error
        else:
            # Work is done once for each call of `begin`, whatever its size.
            is_last = piece.is_last or reading.work is not None
            reading.position = reading.end if is_last else piece.end
        reading.read_at_s = asyncio.get_running_loop().time()
        self._running -= 1
        if reading.error is None and reading.position < reading.end:
            self._queue.append(log)
        else:
            known.now = None
            if reading.work is None or reading.error is not None:
                known.before.append(reading)
        self._wake.set()
        known.wake()


def _new_reading(cold: ColdRange, before: deque[_Reading], *, is_sequential: bool) -> _Reading:
    """Returns a reading of the requested part, or its work.

    For a sequential reader the read-ahead doubles each time."""
    path, position, size, work = cold
    if work is not None:
        return _Reading(path, position, position, cold.end, size, work=work)
    continued = next((reading for reading in before if reading.is_continued_by(cold)), None)
    ahead = 0
    if continued is not None:
        before.remove(continued)
        ahead = min(2 * continued.size, MAX_AHEAD_BYTES) if is_sequential else 0
    size = max(cold.size, PIECE_BYTES) + ahead
    return _Reading(cold.path, cold.position, cold.position, cold.position + size, size)
