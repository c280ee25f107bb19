"""A producer's state of one partition: its waiting batches and their numbering. No I/O."""

from __future__ import annotations

import enum
from bisect import insort
from collections import deque
from dataclasses import dataclass, field

from tidelog.client.retry import Route
from tidelog.client.sealed_batch import SealedBatch
from tidelog.client.sequences import Numbering
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition


class Idempotence(enum.Enum):
    """Whether batches have sequences of a producer, and of which one.

    GIVEN: of a name, where each record has a fixed sequence: if a record is not written, no other
    gets its sequence."""

    OFF = enum.auto()
    UNNAMED = enum.auto()
    NAMED = enum.auto()
    GIVEN = enum.auto()

    @property
    def of_a_name(self) -> bool:
        return self in (Idempotence.NAMED, Idempotence.GIVEN)


@dataclass(slots=True)
class PartitionQueue:
    """Sealed batches of one partition that are not in flight, and the state of their delivery."""

    partition: TopicPartition
    # None: batches carry no sequence.
    numbering: Numbering | None
    waiting: deque[SealedBatch] = field(default_factory=deque)
    # Batches without an outcome that were added after a batch with a later deadline: they were
    # moved from a removed partition, or waited for their turn. All others are in order of deadline.
    early: set[SealedBatch] = field(default_factory=set)
    latest_deadline_ms: int = 0
    in_flight: int = 0
    # A batch failed while others were in flight: nothing is sent until they are answered.
    settling: bool = False
    next_number: int = 0
    # A leader is being queried for the next sequence of a named producer.
    positioning: bool = False
    route: Route = field(default_factory=Route)
    last_error: TidelogError | None = None
    # Set once the partition no longer exists: batches in flight fail with this error.
    removal_error: TidelogError | None = None

    @property
    def waits_for_number(self) -> bool:
        """Whether the next batch to send needs a sequence and has none."""
        return self.numbering is not None and bool(self.waiting) and self.waiting[0].batch is None

    def add(self, batch: SealedBatch) -> None:
        """Appends a new batch."""
        if batch.deadline_ms < self.latest_deadline_ms:
            self.early.add(batch)
        else:
            self.latest_deadline_ms = batch.deadline_ms
        self.waiting.append(batch)
        self.next_number += 1

    def put_back(self, batch: SealedBatch) -> None:
        """Returns a batch that was in flight to its place."""
        insort(self.waiting, batch, key=lambda other: other.number)

    def take_expired(self, now_ms: int) -> list[SealedBatch]:
        """Removes and returns the waiting batches beyond their deadline. Checks the first ones
        only, unless an early batch is beyond its deadline."""
        if any(batch.deadline_ms <= now_ms for batch in self.early):
            expired = [batch for batch in self.waiting if batch.deadline_ms <= now_ms]
            self.waiting = deque(batch for batch in self.waiting if batch.deadline_ms > now_ms)
            return expired
        expired = []
        while self.waiting and self.waiting[0].deadline_ms <= now_ms:
            expired.append(self.waiting.popleft())
        return expired
