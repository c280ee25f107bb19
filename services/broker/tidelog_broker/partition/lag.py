"""How far a follower is behind its leader: in records, bytes and time. Pure."""

from __future__ import annotations

from typing import NamedTuple

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
    """Of a follower that holds all of the leader's `log` below `follower_end`. Costs a read of
    a few kilobytes where it lags."""
    if follower_end >= log.log_end_offset:
        return Lag(0, 0, 0)
    appended_ms = log.append_time_of(max(follower_end, log.log_start_offset))
    age_ms = NOT_KNOWN if appended_ms is None else max(0, wall_ms - appended_ms)
    return Lag(log.log_end_offset - follower_end, log.bytes_from(follower_end), age_ms)


def untold_end(epoch_start: int, high_watermark: int, *, in_isr: bool) -> int:
    """From where on a follower that has told nothing in this epoch is taken to lack records.
    It lacks at least what was written since the epoch began; of what it told before the
    topic's durability changed, that stands which is committed, as long as it is in the ISR."""
    return max(epoch_start, high_watermark) if in_isr else epoch_start


def least_lag_of(log: ReplicaLog, untold: int, wall_ms: int) -> Lag:
    """Of a follower that has told nothing in this epoch: at least what is in the log from
    `untold` (`untold_end`) on; UNKNOWN_LAG where that is nothing, as it may lack older ones."""
    return UNKNOWN_LAG if untold >= log.log_end_offset else lag_of(log, untold, wall_ms)
