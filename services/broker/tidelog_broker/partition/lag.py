"""How far a follower is behind its leader: in records, bytes and time. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import NO_OFFSET
from tidelog_broker.partition.replica_log import ReplicaLog

NOT_KNOWN = -1


class Lag(NamedTuple):
    """`ms`: the age of the oldest record that the follower lacks, by the leader's wall clock
    at its append; 0 where it lacks none. NOT_KNOWN: nothing tells."""

    records: int
    bytes: int
    ms: int


UNKNOWN_LAG = Lag(NOT_KNOWN, NOT_KNOWN, NOT_KNOWN)


def lag_of(log: ReplicaLog, follower_end: int, wall_ms: int) -> Lag:
    """Of a follower that holds all of the leader's `log` below `follower_end`; NO_OFFSET: it
    has told nothing in this epoch. Costs a read of a few kilobytes where it lags."""
    if follower_end == NO_OFFSET:
        return UNKNOWN_LAG
    if follower_end >= log.log_end_offset:
        return Lag(0, 0, 0)
    appended_ms = log.append_time_of(max(follower_end, log.log_start_offset))
    age_ms = NOT_KNOWN if appended_ms is None else max(0, wall_ms - appended_ms)
    return Lag(log.log_end_offset - follower_end, log.bytes_from(follower_end), age_ms)
