"""The values that a partition exchanges: answers to producers, and fetches of followers and their
answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model import Batch, EpochEnd
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_broker.core.partition.replica_log import ColdRange


class Appended(NamedTuple):
    """Where the batches of a request are, with those that were appended before.

    - `base_offset`: NO_OFFSET: all are in the log, but their offsets are unknown.
    - `next_offset`: all are committed once the high watermark has reached it.
    """

    base_offset: int
    next_offset: int
    leader_epoch: int
    append_time_ms: int


class FetchPosition(NamedTuple):
    """The request of a follower. It must still be current when the answer arrives (rule
    `answer-needs-current-request`).

    `needs_producers`: its log is empty and begins above offset 0, and the producers that wrote
    below are unknown."""

    leader: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    flushed_offset: int
    log_start_offset: int
    needs_producers: bool = False


class FetchAnswer(NamedTuple):
    """A leader's answer for one partition.

    - `high_watermark`: NO_OFFSET for a consumer if the leader does not know the committed end.
    - `producers`: those below the log's start, for a follower that needs them.
    - `is_uncommitted`: a consumer gets no batch because the record at its offset is not committed.
    - `cold`: batches from there on are left out because they are only on disk. It is not sent.
    """

    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    batches: Sequence[Batch]
    diverging: EpochEnd | None = None
    producers: ProducerStates | None = None
    is_uncommitted: bool = False
    cold: ColdRange | None = None
