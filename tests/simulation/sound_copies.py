"""Finds committed batches that one replica alone can read."""

from __future__ import annotations

from collections.abc import Iterable

from simulation.shadow_logs import Entry, ShadowLog
from tidelog_broker.log.log_errors import LogError, OffsetOutOfRangeError
from tidelog_broker.partition.replica_log import ReplicaLog


def sole_sound_copy(
    log: ReplicaLog, offset: int, committed: ShadowLog, others: Iterable[ReplicaLog]
) -> Entry | None:
    """Returns the first committed batch from `offset` on that only this log holds."""
    others = list(others)
    for entry in committed.from_offset(offset):
        if entry.base_offset >= log.log_end_offset:
            return None
        if entry.is_unreadable or not _holds(log, entry):
            continue
        if not any(_holds(other, entry) for other in others):
            return entry
    return None


def _holds(log: ReplicaLog, entry: Entry) -> bool:
    try:
        batches = log.read(entry.base_offset, max_bytes=1, up_to=log.log_end_offset)
    except (LogError, OffsetOutOfRangeError):
        return False
    return bool(batches) and Entry.of(batches[0].header) == entry
