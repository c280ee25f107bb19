"""Fetch for consumers: collect what is committed, or wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.log.errors import LogError
from tidelog_broker.partition.exchange import FetchAnswer
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.fetch_wait import (
    MAX_RESPONSE_BYTES,
    Deadline,
    enough,
    in_turn,
    size_of,
)
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.requests.waiting_consumers import WaitingConsumers
from tidelog_runtime.clock import Clock


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


class ConsumerFetch:
    def __init__(self, manager: ReplicaManager, purgatory: Purgatory, clock: Clock) -> None:
        self._manager = manager
        self._purgatory = purgatory
        self._clock = clock
        self.waiting = WaitingConsumers()
        self._turn = 0

    async def __call__(self, entries: Sequence[FetchEntry], wait: FetchWait) -> list[FetchOutcome]:
        """One outcome for each entry, in order; answers as soon as `min_bytes` are there
        or anything went wrong."""
        wanted = enough(wait.min_bytes, wait.max_bytes)
        with self._purgatory.commits(entry.name for entry in entries) as moved:
            deadline = Deadline(wait.max_wait_ms, moved)
            try:
                while True:
                    moved.clear()
                    over = deadline.over
                    outcomes, size, waiting = self._collect(entries, wait.max_bytes)
                    if over or size >= wanted or any(outcome.error for outcome in outcomes):
                        for entry in waiting:
                            now_ms = self._clock.monotonic_ms()
                            self.waiting.note(entry.name, entry.fetch_offset, now_ms)
                        return outcomes
                    await moved.wait()
            finally:
                deadline.cancel()

    def _collect(
        self, entries: Sequence[FetchEntry], max_bytes: int
    ) -> tuple[list[FetchOutcome], int, list[FetchEntry]]:
        """The outcomes, their bytes, and for which the record asked for is not committed."""
        self._turn += 1
        outcomes: dict[int, FetchOutcome] = {}
        waiting: list[FetchEntry] = []
        budget = min(max_bytes, MAX_RESPONSE_BYTES)
        size = 0
        for position in in_turn(len(entries), self._turn):
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
                size += size_of(answer)
                outcomes[position] = FetchOutcome(answer, None)
                if answer.is_uncommitted:
                    waiting.append(entry)
                if answer.batches and self._manager.disk:
                    self._manager.disk.took(partition.key, "read")
        return [outcomes[position] for position in range(len(entries))], size, waiting
