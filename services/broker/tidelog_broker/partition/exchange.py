"""What goes in and out of a partition: answers to producers, questions of followers and
their answers. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model import Batch, EpochEnd


class Appended(NamedTuple):
    base_offset: int
    next_offset: int
    leader_epoch: int
    append_time_ms: int


class FetchPosition(NamedTuple):
    """What a follower asks for, and must still hold true when the answer comes
    (interleaving 6 of known-gaps)."""

    leader: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    flushed_offset: int
    log_start_offset: int


class FetchAnswer(NamedTuple):
    """A leader's answer for one partition."""

    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    batches: Sequence[Batch]
    diverging: EpochEnd | None = None
