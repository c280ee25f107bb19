"""Reads what is on the disk alone into memory, in threads, so that the event loop never waits
for it (section 6 of docs/internals/log-format.md).

What a fetch asks for and memory does not hold is read here a piece at a time, and thrown away:
it is in the page cache then. Whoever waits for it is woken with each piece and asks again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from pathlib import PurePath
from weakref import WeakKeyDictionary

from tidelog_broker.background import RunBlocking
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.errors import read_failure
from tidelog_broker.partition.replica_log import ColdRange, ReplicaLog

# Side by side. Each needs memory for one piece.
READS_AT_ONCE = 4
# As much as an ordinary fetch asks for of one partition; nothing smaller is read.
PIECE_BYTES = 1 << 20
# Beyond what was asked for, for a reader that goes on where it was and while no other waits.
MAX_AHEAD_BYTES = 4 << 20
# What was read longer ago was asked for by somebody else, as like as not.
REMEMBERED_S = 5.0
# Readers of one log that are told apart by where they are.
MAX_READERS = 4


@dataclass(slots=True)
class _Reading:
    """A stretch of a file: read from `start` to `position`, as far as that counts still, and
    wanted to `end`. `size`: of all of it. `error`: why it cannot be read from `position` on."""

    path: PurePath
    start: int
    position: int
    end: int
    size: int
    error: OSError | None = None
    read_at_s: float = 0.0  # time of the loop

    def has_read(self, cold: ColdRange, now_s: float) -> bool:
        """A moment ago; or has failed to, with `error`."""
        if now_s - self.read_at_s > REMEMBERED_S:
            return False
        end = self.position if self.error is None else self.end
        return cold.path == self.path and self.start <= cold.position < end

    def is_continued_by(self, cold: ColdRange) -> bool:
        """The kernel may have read a little more."""
        return cold.path == self.path and 0 <= cold.position - self.position <= PIECE_BYTES


@dataclass(slots=True)
class _ColdLog:
    now: _Reading | None = None
    before: deque[_Reading] = field(default_factory=lambda: deque(maxlen=MAX_READERS))
    waiting: dict[asyncio.Event, None] = field(default_factory=dict)

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for woken in waiting:
            woken.set()


class _Piece:
    """Of a file that may have gone meanwhile: opened where it is read."""

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
    """`begin` takes note; `run` does the reading: one stretch of each log at a time, and of
    those at most READS_AT_ONCE side by side, which take turns."""

    def __init__(self, disk: Disk, run_blocking: RunBlocking) -> None:
        self._disk = disk
        self._run_blocking = run_blocking
        self._logs: WeakKeyDictionary[ReplicaLog, _ColdLog] = WeakKeyDictionary()
        self._queue: deque[ReplicaLog] = deque()
        self._running = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """How many logs are being read."""
        return len(self._queue) + self._running

    def has_read(self, log: ReplicaLog, cold: ColdRange) -> bool:
        """Whether its beginning was read a moment ago, and has left memory again: then whoever
        asks may wait for the disk, once, or a cache that evicts would starve it.
        Raises `LogStorageError` where it could not be read."""
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

    def begin(self, log: ReplicaLog, cold: ColdRange, woken: asyncio.Event) -> None:
        """`woken` is set, once, when more of this log has been read, or cannot be."""
        known = self._logs.setdefault(log, _ColdLog())
        known.waiting[woken] = None
        if known.now is None:
            goes_ahead = len(self) < READS_AT_ONCE
            known.now = _new_reading(cold, known.before, goes_ahead=goes_ahead)
            self._queue.append(log)
            self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as pieces:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue and self._running < READS_AT_ONCE:
                    self._running += 1
                    pieces.create_task(self._read_piece(self._queue.popleft()))

    async def _read_piece(self, log: ReplicaLog) -> None:
        known = self._logs[log]
        reading = known.now
        assert reading is not None
        piece = _Piece(self._disk, reading)
        try:
            await self._run_blocking(piece.run)
        except FileNotFoundError:
            reading.position = reading.end  # the log itself says why it cannot be read, if so
        except OSError as error:
            reading.error = error
        else:
            reading.position = reading.end if piece.is_last else piece.end
        reading.read_at_s = asyncio.get_running_loop().time()
        self._running -= 1
        if reading.error is None and reading.position < reading.end:
            self._queue.append(log)
        else:
            known.now = None
            known.before.append(reading)
        self._wake.set()
        known.wake()


def _new_reading(cold: ColdRange, before: deque[_Reading], *, goes_ahead: bool) -> _Reading:
    """For a reader that goes on twice as much as before is read beyond what it asks for."""
    continued = next((reading for reading in before if reading.is_continued_by(cold)), None)
    ahead = 0
    if continued is not None:
        before.remove(continued)
        ahead = min(2 * continued.size, MAX_AHEAD_BYTES) if goes_ahead else 0
    size = max(cold.size, PIECE_BYTES) + ahead
    return _Reading(cold.path, cold.position, cold.position, cold.position + size, size)
