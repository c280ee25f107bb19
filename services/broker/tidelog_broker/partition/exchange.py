"""What goes in and out of a partition: answers to producers, questions of followers and
their answers. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model import Batch, EpochEnd
from tidelog_broker.partition.producer_state import ProducerStates
from tidelog_broker.partition.replica_log import ColdRange


class Appended(NamedTuple):
    """Where the batches of a request are, those that had been appended before among them;
    all are committed once the high watermark has reached `next_offset`. `base_offset`
    NO_OFFSET: all are in the log, and where cannot be said."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    append_time_ms: int


class FetchPosition(NamedTuple):
    """What a follower asks for, and must still hold true when the answer comes
    (interleaving 6 of docs/internals/interleavings.md).

    `needs_producers`: its log is empty, begins above offset 0, and it does not know yet
    who wrote below."""

    leader: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    flushed_offset: int
    log_start_offset: int
    needs_producers: bool = False


class FetchAnswer(NamedTuple):
    """A leader's answer for one partition. `high_watermark`: NO_OFFSET towards a consumer where
    the leader does not know how far the log is committed. `producers`: those who wrote below
    the log's start, for a follower that needs them. `is_uncommitted`: a consumer gets no batch
    because the record that it asks for is not committed. `cold`: batches are left out from there
    on because they are on the disk alone; nobody else is told."""

    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    batches: Sequence[Batch]
    diverging: EpochEnd | None = None
    producers: ProducerStates | None = None
    is_uncommitted: bool = False
    cold: ColdRange | None = None
