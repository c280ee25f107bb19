"""The digests of a broker's replicas ("Replica digest" in docs/internals/protocol.md).

If memory lacks a digest, the headers of its batches are read from the disk, in threads, one range
after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import NamedTuple

import structlog

from tidelog.batch import is_damaged
from tidelog.log_format import FRAME_HEADER_BYTES, walk_frames
from tidelog.model import Batch, BatchHeader
from tidelog.request_bounds import MAX_RANGE_BATCHES, MAX_RANGE_CONTENT_BYTES
from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.range_digest import (
    BatchSummary,
    LogDigests,
    RangeDigest,
    batch_digest,
)
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk, DiskFile
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.log.segment_scrub import ScrubTarget
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.log_directory import LogDirectory

# Requests beyond this limit are rejected. The scrub compares these ranges in its next pass.
MAX_QUEUED_READS = 256
# For one range. A replica has fewer followers, and each of them compares and lists.
MAX_REQUESTERS = 64
# A range with more batches is not compared; digest_range_offsets allows no more.
MAX_READ_BATCHES = MAX_RANGE_BATCHES

_log = structlog.get_logger()


class ReadBatches(NamedTuple):
    """The batches that begin in a range.

    - `segments`: names of the segments that hold them.
    - `digest`: None: a batch is unreadable, so that the range is not compared.
    - `contents`: the batches themselves with valid checksums, if they were requested.
    """

    batches: list[BatchSummary]
    segments: list[str]
    digest: RangeDigest | None
    contents: list[Batch]

    @property
    def to_its_end(self) -> RangeDigest | None:
        """Returns the digest up to the end of its last batch, which may lie in the next range;
        None: there is none, or no batch begins in the range."""
        if self.digest is None or not self.batches:
            return None
        return self.digest._replace(end=self.batches[-1].next_offset)


class _Request(NamedTuple):
    key: ReplicaKey
    start: int
    end: int
    with_contents: bool = False


# None: there is no result. The log was cut meanwhile, no longer holds the range, or is unreadable.
ReadDone = Callable[[ReadBatches | None], None]


class ReplicaDigests:
    """Reads digests. `run` reads until the broker stops, and calls `done` on the event loop."""

    def __init__(
        self, disk: Disk, logs: LogDirectory, cold_reads: ColdReads, run_blocking: RunBlocking
    ) -> None:
        self._disk = disk
        self._logs = logs
        self._cold_reads = cold_reads
        self._run_blocking = run_blocking
        # Callbacks that wait for each range, by requester.
        self._queue: dict[_Request, dict[Hashable, ReadDone]] = {}
        self._requested = asyncio.Event()

    def of(self, key: ReplicaKey) -> LogDigests | None:
        """Returns None if this broker has no such replica, or if it is out of service."""
        log = self._logs.log_of(key)
        return None if log is None or self._logs.is_out_of_service(key) else log.digests

    def read(
        self,
        key: ReplicaKey,
        start: int,
        end: int,
        requester: Hashable,
        done: ReadDone,
        *,
        with_contents: bool = False,
    ) -> bool:
        """Queues a read of a range; requests for the same range share one read.

        Of one requester only the latest `done` is called. Returns False if too much is queued; then
        `done` is not called."""
        request = _Request(key, start, end, with_contents)
        waiting = self._queue.get(request)
        if waiting is None:
            if len(self._queue) >= MAX_QUEUED_READS:
                return False
            waiting = self._queue[request] = {}
        if requester not in waiting and len(waiting) >= MAX_REQUESTERS:
            return False
        waiting[requester] = done
        self._requested.set()
        return True

    def read_open(self, key: ReplicaKey) -> None:
        """Reads what memory lacks of the range that is growing, after a start or a cut."""
        digests = self.of(key)
        part = digests.to_read() if digests is not None else None
        if digests is None or part is None or _Request(key, *part) in self._queue:
            return

        def done(found: ReadBatches | None) -> None:
            if found is not None:
                digests.read(found.digest, *part)

        self.read(key, *part, "open range", done)

    def read_again(self, key: ReplicaKey) -> bool:
        """Reads the next of the newest ranges after a start, unless it is queued already. Returns
        False if nothing is left, or if too much is queued."""
        digests, log = self.of(key), self._logs.log_of(key)
        if digests is None or log is None:
            return False
        part = digests.to_read_again(log.log_start_offset)
        if part is None or _Request(key, *part) in self._queue:
            return part is not None
        start, _ = part

        def done(found: ReadBatches | None) -> None:
            digests.read_again(start, None if found is None else found.to_its_end)

        return self.read(key, *part, "read again", done)

    async def run(self) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            while self._queue:
                request = next(iter(self._queue))
                found = await self._read(request)
                for done in self._queue.pop(request).values():
                    done(found)

    async def _read(self, request: _Request) -> ReadBatches | None:
        key, start, end, with_contents = request
        log = self._logs.log_of(key)
        if log is None or self._logs.is_out_of_service(key) or not log.log_start_offset <= start:
            return None
        generation = log.digests.generation
        headers: list[BatchHeader] = []
        segments: list[str] = []
        contents: list[Batch] | None = [] if with_contents else None
        at = start
        # One iteration reads one segment at most.
        while at < end:
            if log.closed or log.failed is not None or log.digests.generation != generation:
                return None
            target = await self._target(log, at)
            if target is None:
                return None
            read = await self._headers(target, end, contents)
            # An unreadable batch before the range may reach into it.
            headers += [h for h in read if start <= h.base_offset < end or is_damaged(h)]
            segments.append(target.path.name)
            if not read or read[-1].next_offset <= at or len(headers) > MAX_READ_BATCHES:
                return None
            at = read[-1].next_offset
        if self._logs.log_of(key) is not log or log.digests.generation != generation:
            return None
        return _summarised(start, end, headers, segments)._replace(contents=contents or [])

    async def _target(self, log: Log, offset: int) -> ScrubTarget | None:
        try:
            return await self._cold_reads.until_cached(
                log, lambda waits: log.frames_from(offset, waits=waits)
            )
        except (LogError, OSError) as error:
            _log.info("digest_not_read", log=str(log.directory), reason=str(error))
            return None

    async def _headers(
        self, target: ScrubTarget, end: int, contents: list[Batch] | None
    ) -> list[BatchHeader]:
        """Returns the headers of one segment's batches below the offset `end`, and adds the batches
        to `contents`.

        Returns nothing if a frame is damaged, or if the records of `contents` exceed
        MAX_RANGE_CONTENT_BYTES."""
        found: list[BatchHeader] = []

        def read() -> None:
            file = self._disk.open(target.path)
            try:
                frames = walk_frames(
                    file.read_at,
                    target.end,
                    start=target.place.position,
                    expected_offset=target.place.offset,
                    verify=contents is not None,
                )
                room = MAX_RANGE_CONTENT_BYTES
                room -= sum(len(batch.records) for batch in contents or ())
                for info in frames:
                    if info.fault is not None or info.header is None:
                        # The scrub and readers find damage.
                        found.clear()
                        return
                    if info.header.base_offset >= end or len(found) > MAX_READ_BATCHES:
                        return
                    found.append(info.header)
                    if contents is not None:
                        room -= info.size - FRAME_HEADER_BYTES
                        if room < 0:
                            found.clear()
                            return
                        contents.append(_batch(file, info.header, info.position, info.size))
                # A wrong record count in the last frame is not contradicted by a frame behind it.
                if found and found[-1].next_offset != target.next_offset:
                    found.clear()
            finally:
                file.close()

        try:
            await self._run_blocking(read)
        except OSError as error:
            _log.info("digest_not_read", path=str(target.path), reason=str(error))
            return []
        return found


def _summarised(
    start: int, end: int, headers: list[BatchHeader], segments: list[str]
) -> ReadBatches:
    digest = None
    if not any(map(is_damaged, headers)):
        digest = RangeDigest(start, end, sum(map(batch_digest, headers)) & (1 << 64) - 1)
    return ReadBatches([BatchSummary.of(header) for header in headers], segments, digest, [])


def _batch(file: DiskFile, header: BatchHeader, position: int, size: int) -> Batch:
    records = file.read_at(size - FRAME_HEADER_BYTES, position + FRAME_HEADER_BYTES)
    return Batch(header, bytes(records))
