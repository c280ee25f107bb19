"""Closes the logs of a broker at a clean stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.clean_shutdown import CleanLog
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.storage.damage_marks import DamageMarks
from tidelog_broker.storage.replica_directories import OpenLog, OutOfService

# A clean stop stores at most this many producers of all logs in one file: about 30 MB.
MAX_TOTAL_PRODUCERS = 100_000


class ClosedLogs(NamedTuple):
    """Closed logs.

    - `clean`: what the next start may use instead of reading the log.
    - `unclean`: the names of those that failed, whose data on disk cannot be relied on, with the
      reasons.
    """

    clean: dict[tuple[str, int], CleanLog]
    unclean: list[str]


def close_logs(
    logs: Mapping[ReplicaKey, OpenLog],
    out_of_service: Mapping[ReplicaKey, OutOfService],
    marks: DamageMarks,
) -> ClosedLogs:
    """Syncs and closes logs. Blocks."""
    closed = ClosedLogs({}, [])
    room = MAX_TOTAL_PRODUCERS
    for key, (name, _, log) in logs.items():
        if log is None or key in out_of_service:
            if log is not None:
                log.close()
            # Otherwise the mark records the damage.
            if key not in marks:
                closed.unclean.append(f"{name}: {out_of_service[key].reason}")
            continue
        try:
            ended = log.close_cleanly(room)
        except LogError as error:
            closed.unclean.append(f"{name}: {error}")
        else:
            if ended is not None:
                closed.clean[key] = ended
                room -= len(ended.producers["producers"]) if ended.producers else 0
            if log.failed is not None:
                closed.unclean.append(f"{name}: {log.failed}")
    return closed
