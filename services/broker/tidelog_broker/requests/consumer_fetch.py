"""Fetch for consumers: returns committed records, or waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.core.outrun_consumers import OutrunConsumers
from tidelog_broker.core.partition.exchange import FetchAnswer
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.waiting_consumers import WaitingConsumers
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.fetch_wait import (
    MAX_RESPONSE_BYTES,
    AnswerRoom,
    ColdFetch,
    Deadline,
    Unlimited,
    bytes_to_wait_for,
    rotated,
    size_of,
)
from tidelog_broker.requests.purgatory import Purgatory, work_of_registering
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.damaged_batches import OffsetRange
from tidelog_runtime.clock import Clock

# Work that a fetch takes at a time from FETCH_WORK_PER_TURN, which all fetches share: this
# many partitions without news, or fewer that are read. A read may have to open the segment's file.
WORK_PER_TURN = 32
WORK_OF_READ = 6
# A read of this many bytes takes as long as a partition without news.
BYTES_PER_WORK = 64 << 10


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
    - `is_coming`: the batch is unreadable here, and a follower may still send it.
    """

    answer: FetchAnswer | None
    error: TidelogError | None
    is_coming: bool = False


@dataclass(slots=True)
class _Found:
    """What the partitions of a waiting fetch hold, by position. Records are not kept: thousands of
    fetches may wait with as many bytes as an answer may have.

    - `cold`: only on disk, and being read.
    - `coming`: see `FetchOutcome.is_coming`.
    - `has_no_room`: records were left out because their client has too many unsent answers.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    cold: set[int] = field(default_factory=set)
    coming: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    has_no_room: bool = False

    @property
    def size(self) -> int:
        return sum(self.sizes.values())

    def update(self, outcomes: Mapping[int, FetchOutcome]) -> None:
        for before in (self.cold, self.coming, self.failed):
            before -= outcomes.keys()
        for position, (answer, error, is_coming) in outcomes.items():
            self.sizes.pop(position, None)
            if error is not None:
                self.failed.add(position)
            if is_coming:
                self.coming.add(position)
            if answer is not None:
                if size := size_of(answer):
                    self.sizes[position] = size
                if answer.cold is not None:
                    self.cold.add(position)


class FetchWait(NamedTuple):
    """How long a fetch waits, and for what.

    - `answer`: the room that its client has for the answer; None: no limit.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    answer: AnswerRoom | None = None


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

    async def handle(self, entries: Sequence[FetchEntry], wait: FetchWait) -> list[FetchOutcome]:
        """Returns one outcome for each entry, in order.

        Answers as soon as `min_bytes` are there or anything failed. A read from the disk is waited
        for even if `min_bytes` is 0: an empty answer would only cause the same request again.
        """
        wanted = bytes_to_wait_for(wait.min_bytes, wait.max_bytes)
        everything = range(len(entries))
        positions: Sequence[int] = everything
        by_name = {entry.name: position for position, entry in enumerate(entries)}
        found = _Found()
        answer = wait.answer or Unlimited()
        await self._purgatory.fetch_turns.take(work_of_registering(len(entries)))
        with self._purgatory.commits(entry.name for entry in entries) as moved:
            deadline = Deadline(wait.max_wait_ms, moved)
            try:
                while True:
                    changed = {by_name[name] for name in moved.take_moved()}
                    over = deadline.over
                    if len(positions) < len(entries):
                        positions = sorted(changed | found.cold | found.coming)
                    answer.discard()
                    outcomes, waiting = await self._collect(
                        entries,
                        positions,
                        found,
                        min(wait.max_bytes, MAX_RESPONSE_BYTES),
                        moved,
                        answer,
                    )
                    found.update(outcomes)
                    is_enough = found.size >= wanted and not (found.size == 0 and found.cold)
                    if not (over or is_enough or found.failed):
                        del outcomes
                        answer.discard()
                        await moved.wait()
                        positions = ()
                    elif len(positions) < len(entries):
                        positions = everything
                    elif found.has_no_room and found.size == 0 and not found.failed:
                        raise answer.reject()
                    else:
                        for entry in waiting:
                            now_ms = self._clock.monotonic_ms()
                            self.waiting.note(entry.name, entry.fetch_offset, now_ms)
                        return [outcomes[position] for position in everything]
            finally:
                deadline.cancel()

    async def _collect(
        self,
        entries: Sequence[FetchEntry],
        positions: Sequence[int],
        found: _Found,
        budget: int,
        woken: asyncio.Event,
        answer_room: AnswerRoom,
    ) -> tuple[dict[int, FetchOutcome], list[FetchEntry]]:
        """Reads the entries at `positions`. Returns the outcomes by position, and the entries whose
        record is not committed.

        - `found`: of the other positions.
        """
        self._turn += 1
        found.has_no_room = False
        outcomes: dict[int, FetchOutcome] = {}
        waiting: list[FetchEntry] = []
        cold = ColdFetch(self._cold_reads, woken, budget)
        size = found.size - sum(found.sizes.get(position, 0) for position in positions)
        turns = self._purgatory.fetch_turns
        granted = 0
        for number, turn in enumerate(rotated(len(positions), self._turn)):
            if granted <= 0:
                granted = min(WORK_PER_TURN, len(positions) - number)
                await turns.take(granted)
            granted -= 1
            position = positions[turn]
            entry = entries[position]
            room = min(entry.max_bytes, budget - size, answer_room.room())
            outcome = outcomes[position] = self._read(entry, room, cold)
            answer = outcome.answer
            if answer is None or outcome.error is not None:
                continue
            answered = size_of(answer)
            size += answered
            answer_room.grow(answered)
            if room <= 0 and answer.high_watermark > entry.fetch_offset:
                found.has_no_room = answer_room.room() <= 0
            if answer.is_uncommitted:
                waiting.append(entry)
            if answer.batches or answer.cold is not None:
                work = WORK_OF_READ + answered // BYTES_PER_WORK
                granted -= work
                turns.spend(work)
        return outcomes, waiting

    def _read(self, entry: FetchEntry, room: int, cold: ColdFetch) -> FetchOutcome:
        bounds = None
        try:
            partition = self._manager.partition(entry.name, entry.topic_id)
            bounds = partition.bounds()
            read = partial(partition.read_for_consumer, entry.fetch_offset, entry.known_epoch, room)
            answer = cold.read(read, partition.log)
        except RecordsDamagedError as error:
            if self._is_coming(partition, OffsetRange(error.first_offset, error.next_offset)):
                return FetchOutcome(bounds, None, is_coming=True)
            return FetchOutcome(bounds, error)
        except TidelogError as error:
            if bounds is not None:
                self._note_outrun(entry, bounds, error)
            return FetchOutcome(bounds, error)
        except LogError as error:
            rejection = self._manager.replica_failed(partition, error, "read")
            return FetchOutcome(None if partition.leading is None else bounds, rejection)
        if answer.batches and self._manager.disk:
            self._manager.disk.took(partition.key, "read")
        return FetchOutcome(answer, None)

    def _note_outrun(self, entry: FetchEntry, bounds: FetchAnswer, error: TidelogError) -> None:
        is_deleted = entry.fetch_offset < bounds.log_start_offset
        if is_deleted and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            now_ms = self._clock.monotonic_ms()
            self.outrun.note(entry.name, entry.fetch_offset, error.message, now_ms)
