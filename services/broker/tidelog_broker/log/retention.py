"""Which segments a log no longer has to keep. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_broker.log.config import LogConfig
from tidelog_broker.log.indexes import SegmentSummary
from tidelog_runtime.topic_config import UNLIMITED


def expired_segments(
    sealed: Sequence[SegmentSummary],
    active_bytes: int,
    *,
    config: LogConfig,
    now_ms: int,
    up_to: int,
) -> int:
    """How many of the oldest segments may go: those wholly below the offset `up_to` whose
    youngest record is too old, or without which the log is still too large."""
    total = active_bytes + sum(summary.size for summary in sealed)
    count = 0
    for summary in sealed:
        if summary.next_offset > up_to:
            break
        total -= summary.size
        too_large = config.retention_bytes != UNLIMITED and total >= config.retention_bytes
        if not (too_large or is_expired(summary, config, now_ms)):
            break
        count += 1
    return count


def is_expired(summary: SegmentSummary, config: LogConfig, now_ms: int) -> bool:
    return (
        config.retention_ms != UNLIMITED and now_ms - summary.max_timestamp_ms > config.retention_ms
    )


def is_roll_due(active: SegmentSummary, added_bytes: int, config: LogConfig, now_ms: int) -> bool:
    """An empty segment is never rolled."""
    return active.size > 0 and (
        active.size + added_bytes > config.segment_bytes
        or now_ms - active.first_append_time_ms > config.segment_ms
    )
