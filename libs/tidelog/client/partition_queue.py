"""What a producer keeps of one partition: the batches that wait, and their numbering. No I/O."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from tidelog.client.retry import Route
from tidelog.client.sealed_batch import SealedBatch
from tidelog.client.sequences import Numbering
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition


class Idempotence(enum.Enum):
    """Whether batches carry a producer's sequences, and whose. GIVEN: of a name, and each record
    keeps the sequence that it has: where one is not written, no other takes its place."""

    OFF = enum.auto()
    UNNAMED = enum.auto()
    NAMED = enum.auto()
    GIVEN = enum.auto()

    @property
    def of_a_name(self) -> bool:
        return self in (Idempotence.NAMED, Idempotence.GIVEN)


@dataclass(slots=True)
class PartitionQueue:
    """The batches of one partition that are sealed and not in flight, and how it is doing."""

    partition: TopicPartition
    # None: batches carry no sequence.
    numbering: Numbering | None
    waiting: deque[SealedBatch] = field(default_factory=deque)
    in_flight: int = 0
    # A batch failed while others were in flight: nothing is sent until they are answered.
    settling: bool = False
    next_number: int = 0
    # Somebody asks where a named producer goes on.
    positioning: bool = False
    route: Route = field(default_factory=Route)
    last_error: TidelogError | None = None
    # The partition does not exist any more: what is in flight fails with this.
    gone: TidelogError | None = None

    @property
    def waits_for_number(self) -> bool:
        """Whether the next to be sent has no sequence yet, and needs one."""
        return self.numbering is not None and bool(self.waiting) and self.waiting[0].batch is None
