"""Restores unreadable batches of a leader from in-sync followers ("Damaged batches" in
docs/internals/log-format.md).

The leader requests the batches in its answers to their fetches, and they arrive with the next
fetches (`DigestReports`). No other replica has to become leader for that, and no log is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tidelog.model import NO_LEADER, Batch
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_broker.background import RunBlocking
from tidelog_broker.core.fetch_messages import DivergedRange, ReportedDigest
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.log.repairable_log import RestoreSync
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.damaged_batches import OffsetRange
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock

# How long readers wait for a batch that an in-sync follower may have.
WAIT_MS = 10_000
# When a follower is requested again: while readers wait, and later.
RETRY_MS = 2_000
SLOW_RETRY_MS = 60_000
# A follower is requested to send one range at a time.
PAUSE_MS = 500
# Noted ranges of one replica, besides those that this disk has damaged itself.
MAX_NOTED = 64
# Ranges that wait to be restored. Each of them may have 16 MiB.
MAX_RECEIVED = 4


@dataclass(slots=True)
class _RestoreRequest:
    """The requests for one range of one replica, in one leader epoch.

    - `first_ms`, `last_ms`: by follower, when it was first due for a request, and last got one.
    - `lacking`: followers that cannot read the range either.
    """

    leader_epoch: int
    first_ms: dict[int, int] = field(default_factory=dict)
    last_ms: dict[int, int] = field(default_factory=dict)
    lacking: set[int] = field(default_factory=set)


class _ReceivedBatches(NamedTuple):
    follower: int
    batches: Sequence[Batch]


class BatchRestores:
    """Requests and restores the batches that a leader here cannot read. `run` restores until the
    broker stops."""

    def __init__(
        self,
        logs: LogDirectory,
        manager: ReplicaManager,
        clock: Clock,
        cold_reads: ColdReads,
        run_blocking: RunBlocking,
    ) -> None:
        self._logs = logs
        self._manager = manager
        self._clock = clock
        self._cold_reads = cold_reads
        self._run_blocking = run_blocking
        # Found by readers here: copied unreadable from a previous leader.
        self._noted: dict[ReplicaKey, set[OffsetRange]] = {}
        # By replica that is led here, and range.
        self._requests: dict[tuple[ReplicaKey, OffsetRange], _RestoreRequest] = {}
        self._next_ms: dict[int, int] = {}
        # At most MAX_RECEIVED.
        self._received: dict[tuple[ReplicaKey, OffsetRange], _ReceivedBatches] = {}
        self._is_received = asyncio.Event()

    def may_be_restored(self, partition: Partition, found: OffsetRange) -> bool:
        """Returns whether an in-sync follower may yet send a batch that a reader could not read."""
        key = partition.key
        followers = _in_sync(partition, self._manager.broker_id)
        noted = self._noted.get(key, set())
        if found not in self._logs.damaged_batches.of(key) and found not in noted:
            if not followers or len(noted) >= MAX_NOTED:
                return False
            self._noted.setdefault(key, noted).add(found)
        now_ms = self._clock.monotonic_ms()
        request = self._request_of(partition, found)
        waited_ms = {f: now_ms - request.first_ms.setdefault(f, now_ms) for f in followers}
        return any(f not in request.lacking and waited_ms[f] < WAIT_MS for f in followers)

    def _request_of(self, partition: Partition, found: OffsetRange) -> _RestoreRequest:
        place = partition.key, found
        request = self._requests.get(place)
        if request is None or request.leader_epoch != partition.leader_epoch:
            request = self._requests[place] = _RestoreRequest(partition.leader_epoch)
        return request

    def ranges_to_request(
        self, follower: int, position_of: Callable[[ReplicaKey], int]
    ) -> Sequence[DivergedRange]:
        """Returns what this follower has to send. Its log agrees up to its `position_of` a
        partition."""
        damaged = self._logs.damaged_batches
        if not damaged.count and not self._noted:
            self._requests.clear()
            return ()
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms.get(follower, now_ms):
            return ()
        for key in dict.fromkeys((*damaged.keys(), *self._noted)):
            partition = self._manager.find(key)
            if partition is None or partition.leading is None:
                self._forget(key)
                continue
            if not partition.is_in_sync(follower):
                continue
            up_to = min(position_of(key), partition.high_watermark)
            for found in self._ranges(key, partition.log.log_start_offset):
                if found.next_offset <= up_to and self._is_request_due(
                    partition, found, follower, now_ms
                ):
                    self._next_ms[follower] = now_ms + PAUSE_MS
                    return [DivergedRange(key, *found, wants_contents=True)]
        return ()

    def _forget(self, key: ReplicaKey) -> None:
        """Forgets a replica that does not lead here: it copies unreadable batches from its
        leader."""
        self._noted.pop(key, None)
        for place in [place for place in self._requests if place[0] == key]:
            del self._requests[place]

    def _ranges(self, key: ReplicaKey, log_start: int) -> Iterator[OffsetRange]:
        yield from self._logs.damaged_batches.of(key)
        for found in sorted(self._noted.get(key, ())):
            if found.first_offset >= log_start:
                yield found
            else:
                self._drop(key, found)

    def _is_request_due(
        self, partition: Partition, found: OffsetRange, follower: int, now_ms: int
    ) -> bool:
        """Returns whether a request to this follower is due."""
        request = self._request_of(partition, found)
        first_ms = request.first_ms.setdefault(follower, now_ms)
        is_urgent = follower not in request.lacking and now_ms - first_ms < WAIT_MS
        pause_ms = RETRY_MS if is_urgent else SLOW_RETRY_MS
        last_ms = request.last_ms.get(follower)
        if last_ms is not None and now_ms - last_ms < pause_ms:
            return False
        request.last_ms[follower] = now_ms
        return True

    def received(self, follower: int, report: ReportedDigest) -> bool:
        """Handles a report of a follower, in a range in which its log agrees with the one here.

        Returns whether it answers a request."""
        key, found = report.replica, OffsetRange(report.digest.start, report.digest.end)
        request = self._requests.get((key, found))
        if request is None or follower not in request.last_ms:
            return bool(report.contents)
        partition = self._manager.find(key)
        if partition is not None and partition.leader_epoch == request.leader_epoch:
            if not report.contents:
                request.lacking.add(follower)
            elif len(self._received) < MAX_RECEIVED:
                # Beyond the limit the follower is requested again.
                received = _ReceivedBatches(follower, report.contents)
                self._received.setdefault((key, found), received)
                self._is_received.set()
        return True

    async def run(self) -> None:
        """Restores what was received, one range after another."""
        while True:
            await self._is_received.wait()
            self._is_received.clear()
            while self._received:
                place = next(iter(self._received))
                try:
                    await self._restore(*place, self._received[place])
                finally:
                    del self._received[place]

    async def _restore(
        self, key: ReplicaKey, found: OffsetRange, received: _ReceivedBatches
    ) -> None:
        log, partition = self._logs.log_of(key), self._manager.find(key)
        if log is None or partition is None:
            return
        try:
            sync = await self._cold_reads.until_cached(
                log, partial(self._begin_restore, partition, found, received, log)
            )
            if sync is None:
                return
            await self._run_blocking(sync.run)
            log.finish_restore(sync)
        except LogError as error:
            if self._logs.log_of(key) is log:
                self._manager.replica_failed(partition, error)
            return
        if self._logs.log_of(key) is log:
            self._logs.damaged_batches.restored(key, found)
            self._drop(key, found)
            self._requests.pop((key, found), None)
            self._emit(partition, found, received.follower)

    def _begin_restore(
        self,
        partition: Partition,
        found: OffsetRange,
        received: _ReceivedBatches,
        log: Log,
        waits: bool,
    ) -> RestoreSync | None:
        """Returns None if the batches are not those that were there, or cannot be restored now. In
        the latter case the follower may be requested again."""
        key = partition.key
        request = self._requests.get((key, found))
        if request is None or request.leader_epoch != partition.leader_epoch:
            return None
        if self._logs.log_of(key) is not log or self._logs.is_out_of_service(key) or log.closed:
            return None
        if partition.leading is None or not partition.is_in_sync(received.follower):
            return None
        sync = log.begin_restore(received.batches, waits=waits)
        if sync is None:
            request.lacking.add(received.follower)
        return sync

    def _drop(self, key: ReplicaKey, found: OffsetRange) -> None:
        noted = self._noted.get(key, set())
        noted.discard(found)
        if not noted:
            self._noted.pop(key, None)

    def _emit(self, partition: Partition, found: OffsetRange, follower: int) -> None:
        self._manager.state_changes.emit(
            Kind.REPLICA_REPAIRED,
            Stage.COMPLETED,
            cause=Cause.CORRUPT,
            name=partition.name,
            topic_id=partition.topic_id,
            broker=self._manager.broker_id,
            broker_epoch=self._manager.broker_epoch,
            leader_epoch=partition.leader_epoch,
            revision=partition.revision,
            details={
                **found._asdict(),
                "other_broker": follower,
                "why": f"the leader copied offsets {found.first_offset} to "
                f"{found.next_offset - 1}, which it could not read, from the in-sync follower "
                f"{follower}",
            },
        )


def _in_sync(partition: Partition, broker_id: int) -> list[int]:
    state = partition.state
    if state is None or state.leader == NO_LEADER:
        return []
    return [member for member in state.isr_ids if member != broker_id]
