"""Decides which segments a log no longer has to keep. Pure.

No single record decides how long its segment is kept. A segment is too old once neither a record's
timestamp nor an append time in it is younger than `retention_ms`. Ignored are timestamps further
ahead of this broker's clock than the topic accepts, or than a day, and append times further ahead
than the clocks of brokers may differ. So a timestamp in seconds instead of milliseconds deletes
nothing early, and one in microseconds keeps nothing. A wrong broker clock at the time of an append
has neither effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidelog.batch import UNKNOWN_MS
from tidelog_broker.log.indexes import SegmentSummary
from tidelog_broker.log.log_config import LogConfig
from tidelog_runtime.clock import MAX_SKEW_MS
from tidelog_runtime.topic_config import UNLIMITED

# A timestamp further ahead keeps no segment, even if the topic accepts it: one record could keep
# the log for years. A clock in a wrong time zone is ahead by less.
MAX_RETAINED_AHEAD_MS = 24 * 3_600_000
# With a lower retention_bytes a segment is not rolled earlier than this.
MIN_ROLL_BYTES = 64 << 10
# In one iteration of the event loop: freeing a large file takes some milliseconds.
MAX_DELETED_AT_ONCE = 8

# Returns the append time of the last batch of the segment at that index; it may read it.
LastAppendMs = Callable[[int], int]


def expired_segments(
    sealed: Sequence[SegmentSummary],
    active: SegmentSummary,
    *,
    config: LogConfig,
    now_ms: int | None,
    up_to: int,
    last_append_ms: LastAppendMs,
) -> int:
    """Returns how many of the oldest segments may be deleted.

    They end at or below the offset `up_to`, and are too old, or the log is still too large without
    them. `now_ms` None: the clock is in doubt, and nothing is too old."""
    total = active.size + sum(summary.size for summary in sealed)
    for count, summary in enumerate(sealed):
        if summary.next_offset > up_to:
            return count
        total -= summary.size
        if config.retention_bytes != UNLIMITED and total >= config.retention_bytes:
            continue
        later = (*sealed[count + 1 :], active)
        if now_ms is None or not is_expired(
            summary, config, now_ms, partial(last_append_ms, count), later
        ):
            return count
    return len(sealed)


def is_expired(
    summary: SegmentSummary,
    config: LogConfig,
    now_ms: int,
    last_append_ms: Callable[[], int],
    later: Sequence[SegmentSummary] = (),
) -> bool:
    """Returns whether a segment is too old. `later` are the segments that follow it."""
    if config.retention_ms == UNLIMITED or summary.size == 0:
        return False
    oldest_ms = now_ms - config.retention_ms
    ahead_ms = min(max(config.timestamp_max_ahead_ms, 0), MAX_RETAINED_AHEAD_MS)
    latest_timestamp_ms = now_ms + ahead_ms
    latest_append_ms = now_ms + MAX_SKEW_MS
    if (
        oldest_ms <= summary.max_timestamp_ms <= latest_timestamp_ms
        or oldest_ms <= summary.first_append_time_ms <= latest_append_ms
    ):
        return False
    appended_ms = last_append_ms()
    if appended_ms != UNKNOWN_MS and appended_ms <= latest_append_ms:
        return appended_ms < oldest_ms
    # The append time is ahead of the clock, or lost by damage. The segment is at least as old as
    # what follows it.
    following = (s.first_append_time_ms for s in later if s.size > 0)
    known = [ms for ms in following if ms != UNKNOWN_MS and ms <= latest_append_ms]
    followed_ms = known[0] if known else now_ms
    return followed_ms < oldest_ms


def is_roll_due(
    active: SegmentSummary, added_bytes: int, config: LogConfig, now_ms: int | None
) -> bool:
    """Returns whether the active segment has to be rolled before an append.

    An empty segment is never rolled. A segment that is larger than `retention_bytes` is rolled
    before `segment_bytes`, or it could not be deleted. So is one whose first append time is far
    ahead, because its age would never show."""
    most_bytes = config.segment_bytes
    if config.retention_bytes != UNLIMITED:
        most_bytes = min(most_bytes, max(config.retention_bytes, MIN_ROLL_BYTES))
    return active.size > 0 and (
        active.size + added_bytes > most_bytes
        or (now_ms is not None and abs(now_ms - active.first_append_time_ms) > config.segment_ms)
    )
