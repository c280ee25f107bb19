"""Checks every batch on the disk repeatedly, at a bounded rate ("Scrub" in
docs/internals/log-format.md). So a flipped bit is found before a reader or an election needs the
batch.

Damage is handled like any other: the log itself reads the batch, and its replica resigns and is
repaired. Without other replicas only the batch becomes unreadable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

import structlog

from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.range_digest import RangeDigest, RangeSum, RangeSums
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError, LogStorageError, read_failure
from tidelog_broker.log.segment_scrub import ScrubResult, ScrubTarget, scrub_stretch
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.scrub_pace import ScrubDelay, ScrubPace
from tidelog_broker.storage.scrub_state import ScrubState, ScrubStateFile
from tidelog_runtime.clock import Clock
from tidelog_runtime.pressure.records import Pressure

# Bytes checked by one call in a thread: a few milliseconds of CPU time.
CHUNK_BYTES = 1 << 20
FULL_RATE_CHUNK_BYTES = 8 << 20
IDLE_PAUSE_S = 10.0
ERROR_PAUSE_S = 60.0
# How often the position is written. After a crash up to this much is checked again.
STATE_INTERVAL_MS = 10_000

_log = structlog.get_logger()

DamageFound = Callable[[ReplicaKey, LogError], None]
DigestFound = Callable[[ReplicaKey, RangeDigest], None]


class ScrubStatus(NamedTuple):
    """The status of the scrub.

    - `total_bytes`: of all logs at present.
    - `full_rate`: this pass runs without pauses.
    """

    state: ScrubState
    total_bytes: int
    full_rate: bool
    enabled: bool
    running: bool


class _Step(NamedTuple):
    """The result of one step. `known` is where the next one continues; None: the log finds it."""

    known: ScrubTarget | None = None
    bytes: int = 0
    cpu_s: float = 0.0


class _DigestWalk:
    """Computes the digests of one log while its batches are checked.

    A range has no digest in this pass if a part of it was checked before a restart, or if it was
    cut meanwhile."""

    def __init__(self, log: Log, found: Callable[[RangeDigest], None]) -> None:
        self.log = log
        self._found = found
        self._generation = log.digests.generation
        self.sums: RangeSums | None = None

    def at(self, offset: int) -> RangeSums | None:
        """Returns the sums to which the batches from this offset on are added."""
        digests = self.log.digests
        if not digests.is_on:
            return None
        is_same = self._generation == digests.generation
        if self.sums is None or not is_same or self.sums.open.end != offset:
            self.sums = RangeSums(digests.range_offsets, offset)
            self._generation = digests.generation
        return self.sums

    def checked(self, ranges: Sequence[RangeSum]) -> None:
        if self._generation == self.log.digests.generation:
            for found in filter(None, (checked.digest for checked in ranges)):
                self._found(found)

    def ended(self) -> None:
        """Reports the last range at the end of what is on disk."""
        if self.sums is not None:
            self.checked([self.sums.open])


class Scrubber:
    """Runs one pass after another, replica by replica in the order of their keys."""

    def __init__(
        self,
        disk: Disk,
        logs: LogDirectory,
        state_file: ScrubStateFile,
        clock: Clock,
        cold_reads: ColdReads,
        run_blocking: RunBlocking,
        damage_found: DamageFound,
        *,
        pace: ScrubPace,
        cpu_seconds: Callable[[], float],
        digest_found: DigestFound = lambda *_: None,
    ) -> None:
        """Parameters that the types do not explain:

        - `cpu_seconds`: returns the CPU time of the calling thread.
        - `digest_found`: called with the digest of each range of a log on disk.
        """
        self._disk = disk
        self._logs = logs
        self._state_file = state_file
        self._clock = clock
        self._cold_reads = cold_reads
        self._run_blocking = run_blocking
        self._damage_found = damage_found
        self._digest_found = digest_found
        self._pace = pace
        self._cpu_seconds = cpu_seconds
        self._state = ScrubState()
        self._written_ms = 0
        self._full_rate = False
        self._requested = asyncio.Event()

    def status(self) -> ScrubStatus:
        total = self._total_bytes()
        running = self._state.key is not None or self._requested.is_set()
        return ScrubStatus(self._state, total, self._full_rate, self._pace.period_ms > 0, running)

    def progress(self) -> ScrubState:
        return self._state

    def delay(self) -> ScrubDelay | None:
        """Returns by how much a pass exceeds its period; None: it does not."""
        if self._full_rate:
            return None
        now_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        return self._pace.delay(self._state, self._total_bytes(), now_ms, monotonic_ms)

    def pressures(self) -> Sequence[Pressure]:
        delay = self.delay()
        return () if delay is None else (delay.pressure(),)

    def begin_pass(self, *, full_rate: bool) -> None:
        """Begins a new pass now, instead of the current one."""
        self._state.topic_id = ""
        self._full_rate = full_rate
        self._requested.set()

    async def run(self) -> None:
        self._state = await self._read_state()
        while True:
            try:
                await self._pass()
            except OSError as error:
                self._pace.failed(str(error), self._clock.monotonic_ms())
                _log.warning("scrub_paused", why=str(error))
                await self._pause(ERROR_PAUSE_S)

    async def _read_state(self) -> ScrubState:
        found = ScrubState()

        def read() -> None:
            nonlocal found
            found = self._state_file.read()

        try:
            await self._run_blocking(read)
        except OSError as error:
            _log.warning("scrub_begins_again", why=str(error))
        return found

    async def _pass(self) -> None:
        """Runs to the end of the pass, or until another one is requested."""
        while not self._may_begin():
            await self._pause(IDLE_PAUSE_S)
        state = self._state
        if state.key is None:
            self._requested.clear()
            state.pass_began_ms, state.pass_bytes = self._clock.wall_ms(), 0
            self._pace.pass_begins()
        resume_at = state.key
        for key in sorted(self._logs.keys()):
            if resume_at is not None and key < resume_at:
                continue
            offset = state.offset if key == resume_at else 0
            resume_at = None
            state.topic_id, state.partition, state.offset = key.topic_id, key.partition, offset
            if not await self._replica(key):
                return
        state.topic_id, state.partition, state.offset = "", 0, 0
        state.passes += 1
        state.last_pass_began_ms, state.last_pass_bytes = state.pass_began_ms, state.pass_bytes
        state.last_pass_ended_ms = self._clock.wall_ms()
        self._full_rate = False
        await self._write_state()

    def _may_begin(self) -> bool:
        """Returns whether a pass may begin or continue.

        At its rate a pass takes the period, or less if there is little data."""
        state = self._state
        if state.key is not None or self._requested.is_set():
            return True
        if state.passes == 0:
            return self._pace.period_ms > 0
        ago_ms = self._clock.wall_ms() - state.last_pass_began_ms
        return self._pace.period_ms > 0 and not 0 <= ago_ms < self._pace.period_ms

    async def _replica(self, key: ReplicaKey) -> bool:
        """Checks what is on disk of one replica. Returns False if another pass was requested."""
        known: ScrubTarget | None = None
        walk: _DigestWalk | None = None
        while True:
            log = self._logs.log_of(key)
            if (
                log is None
                or self._logs.is_out_of_service(key)
                or log.closed
                or log.failed is not None
            ):
                return True
            if walk is None or walk.log is not log:
                walk = _DigestWalk(log, partial(self._digest_found, key))
            began = self._clock.monotonic_ms()
            step = await self._step(key, log, walk, known)
            if self._is_superseded:
                return False
            if step is None:
                return True
            known = step.known
            await self._write_state_periodically()
            took_s = (self._clock.monotonic_ms() - began) / 1000
            await self._pause_after(step.bytes, step.cpu_s, took_s)
            if self._is_superseded:
                return False

    async def _step(
        self, key: ReplicaKey, log: Log, walk: _DigestWalk, known: ScrubTarget | None
    ) -> _Step | None:
        """Checks one chunk. Returns None if nothing of the replica is left."""
        state = self._state
        try:
            target = await self._cold_reads.until_cached(
                log, lambda waits: log.scrub_target(state.offset, known, waits=waits)
            )
            if log.closed:
                return None
            if target is None:
                walk.ended()
                return None
            scrubbed, cpu_s = await self._check(log, target, walk.at(target.place.offset))
        except (LogError, OSError) as error:
            walk.sums = None
            return _Step() if self._skip_segment(key, log, error) else None
        state.bytes_checked += scrubbed.bytes
        state.pass_bytes += scrubbed.bytes
        if self._is_superseded:
            return None
        walk.checked(scrubbed.ranges)
        step = _Step(None, scrubbed.bytes, cpu_s)
        if scrubbed.fault:
            walk.sums = None
            return step if await self._confirm_fault(key, log, scrubbed) else None
        if scrubbed.next.offset > target.place.offset:
            state.offset = scrubbed.next.offset
            return step._replace(known=target._replace(place=scrubbed.next))
        if log.log_start_offset > target.place.offset:
            return step
        walk.ended()
        return None  # nothing more of it is on the disk

    @property
    def _is_superseded(self) -> bool:
        return self._requested.is_set() and not self._state.topic_id

    async def _check(
        self, log: Log, target: ScrubTarget, sums: RangeSums | None
    ) -> tuple[ScrubResult, float]:
        """Checks a chunk in a thread. Returns its result and CPU time. Raises OSError."""
        path, place, end, _ = target
        found = ScrubResult(place, 0, "")
        cpu_s = 0.0
        size = FULL_RATE_CHUNK_BYTES if self._full_rate else CHUNK_BYTES
        up_to = log.flushed_offset

        def check() -> None:
            nonlocal found, cpu_s
            before = self._cpu_seconds()
            found = scrub_stretch(
                self._disk, path, place, end=end, up_to=up_to, max_bytes=size, sums=sums
            )
            cpu_s = self._cpu_seconds() - before

        try:
            await self._run_blocking(check)
        except OSError as error:
            # A lack of descriptors or memory is no fault of the replica.
            passes = LogStorageError.of(error, path, "read").is_transient
            if passes or (log.has_segment(path) and not log.closed):
                error.filename = error.filename or str(path)
                raise
            # Retention has deleted the segment meanwhile, or the log was cut.
        return found, cpu_s

    def _skip_segment(self, key: ReplicaKey, log: Log, error: LogError | OSError) -> bool:
        """Reports why a chunk cannot be read, and continues with the next segment.

        Returns False if there is none. Raises an `OSError` that is transient."""
        if isinstance(error, OSError):
            path = PurePath(error.filename) if error.filename else log.directory
            failure: LogError = read_failure(error, path, "read")
        else:
            failure = error
        if isinstance(failure, LogStorageError) and failure.is_transient:
            raise OSError(failure.errno, str(failure)) from error
        if self._logs.log_of(key) is not log or log.closed:
            return True
        self._report(key, failure)
        return self._next_segment(log)

    def _next_segment(self, log: Log) -> bool:
        following = log.next_segment(self._state.offset)
        if following is None:
            return False
        self._state.offset = following
        return True

    async def _confirm_fault(self, key: ReplicaKey, log: Log, scrubbed: ScrubResult) -> bool:
        """Has the log itself read the batch, and reports damage only if that fails, too.

        The log may have been cut meanwhile; then the walk continues. Returns False if nothing is
        left to check: the code that makes the damage unreadable checks the rest of the segment."""
        offset, was_at = scrubbed.next.offset, self._state.offset
        self._state.offset = offset
        try:
            if self._logs.log_of(key) is log:
                await self._cold_reads.until_cached(
                    log, lambda waits: log.frames_from(offset, waits=waits)
                )
            if (
                self._logs.log_of(key) is not log
                or log.closed
                or not log.log_start_offset <= offset < log.log_end_offset
            ):
                return True
            batches = log.read(offset, max_bytes=1, up_to=log.log_end_offset)
        except LogError as error:
            return self._skip_segment(key, log, error)
        if offset == was_at and batches:
            # The log has read it without a fault for the second time. The page cache may hold it.
            self._state.offset = batches[-1].header.next_offset
        return True

    def _report(self, key: ReplicaKey, error: LogError) -> None:
        _log.error(
            "scrub_found_damage",
            partition=str(self._logs.name_of(key)),
            offset=self._state.offset,
            why=str(error),
        )
        self._state.damage_found += 1
        self._damage_found(key, error)

    async def _pause_after(self, checked: int, cpu_s: float, took_s: float) -> None:
        if self._full_rate:
            await asyncio.sleep(0)
            return
        pause_s = self._pace.pause_s(
            checked, cpu_s, took_s, self._state, self._total_bytes(), self._clock.wall_ms()
        )
        await self._pause(pause_s)

    def _total_bytes(self) -> int:
        return sum(log.size_bytes for log in self._logs.logs())

    async def _pause(self, seconds: float) -> None:
        """Waits, or returns early if a pass is requested."""
        try:
            async with asyncio.timeout(seconds):
                await self._requested.wait()
        except TimeoutError:
            pass

    async def _write_state_periodically(self) -> None:
        if self._clock.monotonic_ms() - self._written_ms >= STATE_INTERVAL_MS:
            await self._write_state()

    async def _write_state(self) -> None:
        self._written_ms = self._clock.monotonic_ms()
        try:
            await self._run_blocking(lambda: self._state_file.write(self._state))
        except OSError as error:
            _log.warning("scrub_state_not_written", why=str(error))
