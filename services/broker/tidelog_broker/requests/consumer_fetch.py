"""Fetch for consumers: returns committed records, or waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.partition.exchange import FetchAnswer
from tidelog_broker.partition.partition import Partition
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.fetch_wait import (
    MAX_RESPONSE_BYTES,
    ColdFetch,
    Deadline,
    enough,
    in_turn,
    size_of,
)
from tidelog_broker.requests.outrun_consumers import OutrunConsumers
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.requests.waiting_consumers import WaitingConsumers
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.damaged_batches import OffsetRange
from tidelog_runtime.clock import Clock

# Work of a fetch between two turns of the event loop, a millisecond or two: this many partitions
# without news, or fewer that are read. A read may have to open the segment's file.
WORK_PER_TURN = 32
WORK_OF_READ = 6


class FetchEntry(NamedTuple):
    name: TopicPartition
    topic_id: str
    known_epoch: int
    fetch_offset: int
    max_bytes: int


class FetchOutcome(NamedTuple):
    """The result for one partition.

    - `answer`: with an error it has no batches, and is None if this broker does not lead the
      partition.
    """

    answer: FetchAnswer | None
    error: TidelogError | None


class FetchWait(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class ConsumerFetch:
    def __init__(
        self,
        manager: ReplicaManager,
        purgatory: Purgatory,
        clock: Clock,
        cold_reads: ColdReads,
        may_be_restored: Callable[[Partition, OffsetRange], bool] = lambda *_: False,
    ) -> None:
        """`may_be_restored`: whether a follower may still send a batch that is unreadable here.

        Readers wait for it.
        """
        self._is_coming = may_be_restored
        self._manager = manager
        self._purgatory = purgatory
        self._clock = clock
        self._cold_reads = cold_reads
        self.waiting = WaitingConsumers()
        self.outrun = OutrunConsumers()
        self._turn = 0

    async def __call__(self, entries: Sequence[FetchEntry], wait: FetchWait) -> list[FetchOutcome]:
        """Returns one outcome for each entry, in order.

        Answers as soon as `min_bytes` are there or anything failed. A read from the disk is waited
        for even if `min_bytes` is 0: an empty answer would only cause the same request again.
        """
        wanted = enough(wait.min_bytes, wait.max_bytes)
        with self._purgatory.commits(entry.name for entry in entries) as moved:
            deadline = Deadline(wait.max_wait_ms, moved)
            try:
                while True:
                    moved.clear()
                    over = deadline.over
                    outcomes, size, waiting = await self._collect(entries, wait.max_bytes, moved)
                    is_enough = size >= wanted and not (size == 0 and _is_cold(outcomes))
                    if over or is_enough or any(outcome.error for outcome in outcomes):
                        for entry in waiting:
                            now_ms = self._clock.monotonic_ms()
                            self.waiting.note(entry.name, entry.fetch_offset, now_ms)
                        return outcomes
                    await moved.wait()
            finally:
                deadline.cancel()

    async def _collect(
        self, entries: Sequence[FetchEntry], max_bytes: int, woken: asyncio.Event
    ) -> tuple[list[FetchOutcome], int, list[FetchEntry]]:
        """Returns the outcomes, their bytes, and the entries whose record is not committed."""
        self._turn += 1
        outcomes: dict[int, FetchOutcome] = {}
        waiting: list[FetchEntry] = []
        budget = min(max_bytes, MAX_RESPONSE_BYTES)
        cold = ColdFetch(self._cold_reads, woken, budget)
        size = work = 0
        for position in in_turn(len(entries), self._turn):
            if work >= WORK_PER_TURN:
                work = 0
                await asyncio.sleep(0)
            work += 1
            entry = entries[position]
            bounds = None
            try:
                partition = self._manager.partition(entry.name, entry.topic_id)
                bounds = partition.bounds()
                room = min(entry.max_bytes, budget - size)
                read = partial(
                    partition.read_for_consumer, entry.fetch_offset, entry.known_epoch, room
                )
                answer = cold.read(read, partition.log)
            except RecordsDamagedError as error:
                found = OffsetRange(error.first_offset, error.next_offset)
                waits = self._is_coming(partition, found)
                outcomes[position] = FetchOutcome(bounds, None if waits else error)
            except TidelogError as error:
                outcomes[position] = FetchOutcome(bounds, error)
                if bounds is not None:
                    self._note_outrun(entry, bounds, error)
            except LogError as error:
                refused = self._manager.replica_failed(partition, error, "read")
                if partition.leading is None:
                    bounds = None
                outcomes[position] = FetchOutcome(bounds, refused)
            else:
                size += size_of(answer)
                outcomes[position] = FetchOutcome(answer, None)
                if answer.batches or answer.cold is not None:
                    work += WORK_OF_READ
                if answer.is_uncommitted:
                    waiting.append(entry)
                if answer.batches and self._manager.disk:
                    self._manager.disk.took(partition.key, "read")
        return [outcomes[position] for position in range(len(entries))], size, waiting

    def _note_outrun(self, entry: FetchEntry, bounds: FetchAnswer, error: TidelogError) -> None:
        is_deleted = entry.fetch_offset < bounds.log_start_offset
        if is_deleted and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            now_ms = self._clock.monotonic_ms()
            self.outrun.note(entry.name, entry.fetch_offset, error.message, now_ms)


def _is_cold(outcomes: Sequence[FetchOutcome]) -> bool:
    return any(o.answer is not None and o.answer.cold is not None for o in outcomes)
