"""Configuration of a log. The topic's part of it comes from `TopicConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_runtime.clock import MAX_SKEW_MS
from tidelog_runtime.topic_config import UNLIMITED, TopicConfig

# A search walks at most this many bytes of frame headers. A segment of 256 MiB has at most 16,384
# index entries.
INDEX_INTERVAL_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Configuration of a log. `TopicConfig` documents the fields that both have.

    `segment_bytes` is a soft limit: batches that are appended together stay together."""

    segment_bytes: int = 256 << 20
    segment_ms: int = 7 * 24 * 3_600_000
    retention_ms: int = 7 * 24 * 3_600_000
    retention_bytes: int = UNLIMITED
    timestamp_max_ahead_ms: int = 3_600_000
    index_interval_bytes: int = INDEX_INTERVAL_BYTES

    @classmethod
    def of_topic(cls, topic: TopicConfig) -> LogConfig:
        return cls(
            segment_bytes=topic.segment_bytes,
            segment_ms=topic.segment_ms,
            retention_ms=topic.retention_ms,
            retention_bytes=topic.retention_bytes,
            timestamp_max_ahead_ms=(
                # Its timestamps are the times of brokers.
                MAX_SKEW_MS if topic.timestamp_type == "append" else topic.timestamp_max_ahead_ms
            ),
        )
