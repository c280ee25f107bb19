"""Limits that a topic's configuration sets for single batches."""

from __future__ import annotations

from typing import NamedTuple, Self

from tidelog_runtime.topic_config import TopicConfig


class BatchLimits(NamedTuple):
    """Limits of a topic.

    - `max_bytes`, `max_records`: of one batch, as it is sent.
    - `max_ahead_ms`: how far a timestamp may be ahead of the clock; UNLIMITED: any distance.
    - `append_time`: records get the time of their append.
    """

    max_bytes: int
    max_records: int
    max_ahead_ms: int
    append_time: bool

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        return cls(
            config.max_batch_bytes,
            config.max_batch_records,
            config.timestamp_max_ahead_ms,
            config.timestamp_type == "append",
        )
