"""How far a follower is behind its leader: in records, bytes and time. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_broker.core.partition.replica_log import ReplicaLog

NOT_KNOWN = -1


class Lag(NamedTuple):
    """The lag of a follower; NOT_KNOWN where it is unknown.

    `ms` is the age of the oldest record that the follower lacks, by the leader's wall clock at its
    append; 0: it lacks none."""

    records: int
    bytes: int
    ms: int


UNKNOWN_LAG = Lag(NOT_KNOWN, NOT_KNOWN, NOT_KNOWN)


def lag_of(log: ReplicaLog, follower_end: int, wall_ms: int) -> Lag:
    """Returns the lag of a follower that holds all of the leader's `log` below `follower_end`.

    Reads a few kilobytes if the follower lags."""
    if follower_end >= log.log_end_offset:
        return Lag(0, 0, 0)
    appended_ms = log.append_time_of(max(follower_end, log.log_start_offset))
    age_ms = NOT_KNOWN if appended_ms is None else max(0, wall_ms - appended_ms)
    return Lag(log.log_end_offset - follower_end, log.bytes_from(follower_end), age_ms)


def unreported_end(epoch_start: int, high_watermark: int, *, in_isr: bool) -> int:
    """Returns the offset from which a follower without a fetch in this epoch is assumed to lack
    records.

    It lacks at least what was written since the epoch began. If the topic's durability has changed,
    a member of the ISR still has what is committed."""
    return max(epoch_start, high_watermark) if in_isr else epoch_start


def least_lag_of(log: ReplicaLog, first_lacking: int, wall_ms: int) -> Lag:
    """Returns the minimal lag of a follower without a fetch in this epoch.

    It lacks at least the log from `first_lacking` (`unreported_end`) on. If that is empty, the
    result is UNKNOWN_LAG, because it may lack older records."""
    return (
        UNKNOWN_LAG if first_lacking >= log.log_end_offset else lag_of(log, first_lacking, wall_ms)
    )
