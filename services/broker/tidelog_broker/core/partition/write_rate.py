"""The rate at which a partition is written, from the append times of its batches. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from tidelog_broker.core.partition.replica_log import ReplicaLog

STRETCHES = 3
STRETCH_MS = 3_000
# Limit of headers that are read for one rate, each a few kilobytes at most.
MAX_PROBES = 200


class WriteRate(NamedTuple):
    """Rates in bytes per second.

    - `usual`: the median of the last STRETCHES intervals, so that a single burst has no effect.
    - `most`: the highest of them, which is the rate of a stream that has just begun.
    """

    usual: int
    most: int


def write_rate(log: ReplicaLog, wall_ms: int) -> WriteRate | None:
    """Returns the rate over the last STRETCHES * STRETCH_MS; None: memory does not hold the log so
    far back."""
    search = _Search(log)
    offset = log.log_end_offset
    sizes = [0]
    for number in range(1, STRETCHES + 1):
        found = search.first_since(wall_ms - number * STRETCH_MS, offset)
        if found is None:
            return None
        offset = found
        sizes.append(log.bytes_from(offset))
    written = sorted(later - earlier for earlier, later in pairwise(sizes))
    usual, most = (size * 1_000 // STRETCH_MS for size in (written[STRETCHES // 2], written[-1]))
    return WriteRate(usual, most)


class _Search:
    def __init__(self, log: ReplicaLog) -> None:
        self._log = log
        self._probes = 0

    def first_since(self, time_ms: int, end: int) -> int | None:
        """Returns the first offset up to `end` that was appended at that time or later; `end`: none
        was.

        Searches backwards from the end, where memory holds the log."""
        start = self._log.log_start_offset
        since, step = end, 1
        before = start - 1
        while since > start:
            probed = max(start, since - step)
            is_since = self._is_since(probed, time_ms)
            if is_since is None:
                return None
            if not is_since:
                before = probed
                break
            since, step = probed, step * 2
        while since - before > 1:
            middle = (before + since) // 2
            is_since = self._is_since(middle, time_ms)
            if is_since is None:
                return None
            before, since = (before, middle) if is_since else (middle, since)
        return since

    def _is_since(self, offset: int, time_ms: int) -> bool | None:
        self._probes += 1
        if self._probes > MAX_PROBES:
            return None
        appended_ms = self._log.append_time_of(offset)
        return None if appended_ms is None else appended_ms >= time_ms
