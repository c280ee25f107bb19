"""Fetch for consumers and for followers: collect what is there, or wait for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, TopicPartition
from tidelog_broker.log.errors import LogError
from tidelog_broker.partition.exchange import FetchAnswer
from tidelog_broker.purgatory import Purgatory
from tidelog_broker.replica_manager import ReplicaManager
from tidelog_broker.transport import (
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
    ReplicaKey,
)
from tidelog_runtime.clock import Clock

MAX_WAIT_MS = 60_000
# A follower is told of every partition at least this often, as long as it asks.
EVERYTHING_INTERVAL_MS = 500
# What one answer carries at most, whatever the request allows: it bounds the memory of
# the broker and stays below the largest gRPC message.
MAX_RESPONSE_BYTES = 16 << 20

_log = structlog.get_logger()


class FetchEntry(NamedTuple):
    name: TopicPartition
    topic_id: str
    known_epoch: int
    fetch_offset: int
    max_bytes: int


class FetchOutcome(NamedTuple):
    """Without an error: the answer. With one: `answer` has no batches, and is None where
    this broker does not lead the partition."""

    answer: FetchAnswer | None
    error: TidelogError | None


class FetchWait(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


def _size(answer: FetchAnswer) -> int:
    return sum(len(batch.records) for batch in answer.batches)


def _in_turn(count: int, turn: int) -> Iterator[int]:
    """The positions 0 to `count` - 1, beginning with another one each turn, so that a busy
    partition cannot starve those behind it."""
    return ((turn + position) % count for position in range(count))


def _enough(min_bytes: int, max_bytes: int) -> int:
    """More than an answer may carry is not worth waiting for."""
    return min(min_bytes, max_bytes, MAX_RESPONSE_BYTES)


class _Deadline:
    """Wakes a wait when its time has come, and remembers it: a loop's timers may fire a
    moment before its clock says so."""

    def __init__(self, max_wait_ms: int, event: asyncio.Event) -> None:
        self.over = max_wait_ms <= 0
        self._event = event
        seconds = min(max_wait_ms, MAX_WAIT_MS) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._pass)

    def _pass(self) -> None:
        self.over = True
        self._event.set()

    def cancel(self) -> None:
        self._timer.cancel()


class ConsumerFetch:
    def __init__(self, manager: ReplicaManager, purgatory: Purgatory) -> None:
        self._manager = manager
        self._purgatory = purgatory
        self._turn = 0

    async def __call__(self, entries: Sequence[FetchEntry], wait: FetchWait) -> list[FetchOutcome]:
        """One outcome for each entry, in order; answers as soon as `min_bytes` are there
        or anything went wrong."""
        enough = _enough(wait.min_bytes, wait.max_bytes)
        with self._purgatory.commits(entry.name for entry in entries) as moved:
            deadline = _Deadline(wait.max_wait_ms, moved)
            try:
                while True:
                    moved.clear()
                    over = deadline.over
                    outcomes, size = self._collect(entries, wait.max_bytes)
                    if over or size >= enough or any(outcome.error for outcome in outcomes):
                        return outcomes
                    await moved.wait()
            finally:
                deadline.cancel()

    def _collect(
        self, entries: Sequence[FetchEntry], max_bytes: int
    ) -> tuple[list[FetchOutcome], int]:
        self._turn += 1
        outcomes: dict[int, FetchOutcome] = {}
        budget = min(max_bytes, MAX_RESPONSE_BYTES)
        size = 0
        for position in _in_turn(len(entries), self._turn):
            entry = entries[position]
            bounds = None
            try:
                partition = self._manager.partition(entry.name, entry.topic_id)
                bounds = partition.bounds()
                answer = partition.read_for_consumer(
                    entry.fetch_offset, entry.known_epoch, min(entry.max_bytes, budget - size)
                )
            except TidelogError as error:
                outcomes[position] = FetchOutcome(bounds, error)
            except LogError as error:
                refused = self._manager.replica_failed(partition, error, "read")
                if partition.leading is None:
                    bounds = None
                outcomes[position] = FetchOutcome(bounds, refused)
            else:
                size += _size(answer)
                outcomes[position] = FetchOutcome(answer, None)
        return [outcomes[position] for position in range(len(entries))], size


@dataclass(slots=True)
class _Told:
    """What one life of a follower has been told."""

    broker_epoch: int
    high_watermarks: dict[ReplicaKey, int] = field(default_factory=dict)
    everything_at_ms: int = 0


class ReplicaFetch:
    """Serves the followers of the partitions that this broker leads."""

    def __init__(self, manager: ReplicaManager, purgatory: Purgatory, clock: Clock) -> None:
        self._manager = manager
        self._purgatory = purgatory
        self._clock = clock
        # By follower: two that ask by turns must not always begin with the same partition.
        self._turns: Counter[int] = Counter()
        # By follower and durability, each of which has a fetch of its own.
        self._told: dict[tuple[int, bool], _Told] = {}

    async def __call__(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        """Answers what is news to the follower, and everything from time to time: answers
        do not grow with the partitions that stand still while others are busy."""
        if request.leader_broker_epoch < self._manager.broker_epoch:
            return ReplicaFetchResponse(
                TidelogError(
                    ErrorCode.STALE_BROKER_EPOCH,
                    f"broker {self._manager.broker_id} lives in broker epoch "
                    f"{self._manager.broker_epoch}; the fetch is for its former life "
                    f"{request.leader_broker_epoch}",
                ),
                (),
            )
        enough = _enough(request.min_bytes, request.max_bytes)
        urgent = self._note_positions(request)
        entries = [e for e in request.entries if e.replica not in urgent]
        partitions = [self._manager.replica(entry.replica) for entry in entries]
        names = [partition.name for partition in partitions]
        told = self._told_to(request, synced=any(p.synced for p in partitions))
        now_ms = self._clock.monotonic_ms()
        full = now_ms - told.everything_at_ms >= EVERYTHING_INTERVAL_MS
        with self._purgatory.growth(names) as grew:
            deadline = _Deadline(request.max_wait_ms, grew)
            try:
                while True:
                    grew.clear()
                    over = deadline.over
                    known = {} if over or full else told.high_watermarks
                    found, size = self._collect(
                        request.broker_id, entries, request.max_bytes, known
                    )
                    failed = any(result.error for result in found)
                    if urgent or failed or size >= enough or over:
                        break
                    await grew.wait()
            finally:
                deadline.cancel()
        if over or full:
            told.everything_at_ms = now_ms
        told.high_watermarks.update(
            (result.replica, result.answer.high_watermark) for result in found if result.answer
        )
        return ReplicaFetchResponse(None, [*urgent.values(), *found])

    def _told_to(self, request: ReplicaFetchRequest, *, synced: bool) -> _Told:
        """An answer may be lost on its way, or come too late to count: whatever it told is
        told again within EVERYTHING_INTERVAL_MS."""
        fetch = request.broker_id, synced
        told = self._told.get(fetch)
        if told is None or told.broker_epoch != request.broker_epoch:
            told = self._told[fetch] = _Told(request.broker_epoch)
        elif len(told.high_watermarks) > 2 * len(request.entries):
            present = {entry.replica for entry in request.entries}
            for replica in told.high_watermarks.keys() - present:
                del told.high_watermarks[replica]
        return told

    def _note_positions(self, request: ReplicaFetchRequest) -> dict[ReplicaKey, ReplicaFetchResult]:
        """Tells every partition how far the follower is; returns what must be answered
        without waiting: refusals and divergences."""
        urgent: dict[ReplicaKey, ReplicaFetchResult] = {}
        now_ms = self._clock.monotonic_ms()
        for entry in request.entries:
            log_start = NO_OFFSET
            try:
                partition = self._manager.replica(entry.replica)
                log_start = partition.log.log_start_offset
                diverging = partition.replica_fetch(
                    request.broker_id, request.broker_epoch, entry.position, now_ms
                )
            except TidelogError as error:
                urgent[entry.replica] = ReplicaFetchResult(entry.replica, None, error, log_start)
                continue
            if diverging is not None:
                answer = FetchAnswer(
                    partition.high_watermark, log_start, partition.leader_epoch, (), diverging
                )
                urgent[entry.replica] = ReplicaFetchResult(entry.replica, answer, None, log_start)
        return urgent

    def _collect(
        self,
        follower: int,
        entries: Sequence[ReplicaFetchEntry],
        max_bytes: int,
        told: Mapping[ReplicaKey, int],
    ) -> tuple[list[ReplicaFetchResult], int]:
        if not entries:
            return [], 0
        self._turns[follower] += 1
        budget = min(max_bytes, MAX_RESPONSE_BYTES)
        size = 0
        results = []
        for position in _in_turn(len(entries), self._turns[follower]):
            entry = entries[position]
            log_start = NO_OFFSET
            try:
                partition = self._manager.replica(entry.replica)
                if not partition.has_news(entry.position, told.get(entry.replica, NO_OFFSET)):
                    continue
                log_start = partition.log.log_start_offset
                answer = partition.read_for_follower(
                    entry.position, min(entry.max_bytes, budget - size)
                )
            except TidelogError as error:
                results.append(ReplicaFetchResult(entry.replica, None, error, log_start))
            except LogError as error:
                refused = self._manager.replica_failed(partition, error, "read")
                results.append(ReplicaFetchResult(entry.replica, None, refused, log_start))
            else:
                size += _size(answer)
                results.append(ReplicaFetchResult(entry.replica, answer, None, log_start))
        return results, size
