"""Marks of replicas that are known to be damaged, on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

import structlog

from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk
from tidelog_broker.storage.replica_notes import ReplicaNotes

_log = structlog.get_logger()


class DamageMarks:
    """A mark exists from before valid data is cut until the metadata store records that the replica
    is not intact and the log was checked (rules `losses-remembered-across-incarnations` and
    `damaged-replica-resigns-first`). An unreadable mark, or one that reappears, only makes a
    replica resign again. All methods except `in` block."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self._notes = ReplicaNotes(disk, path, "damage-mark", if_damaged=str)
        self._marked: set[ReplicaKey] = set()

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self._marked

    def read(self) -> Mapping[ReplicaKey, str]:
        """Reads what previous processes have marked, with the reasons. Creates the directory, and
        syncs the names beside it. Raises OSError."""
        self._notes.prepare()
        marked = self._notes.read()
        self._marked.update(marked)
        return marked

    def write(self, key: ReplicaKey, reason: str) -> None:
        """Marks a replica, before its log is cut. Raises OSError."""
        self._notes.write(key, reason)
        self._marked.add(key)

    def try_write(self, key: ReplicaKey, reason: str) -> bool:
        """Marks a replica. Returns whether the disk accepted the mark."""
        try:
            self.write(key, reason)
        except OSError as error:
            # Nothing is cut before the metadata store records that the replica is not intact.
            _log.error("damage_not_marked", topic_id=key.topic_id, why=str(error))
            return False
        return True

    def remove(self, key: ReplicaKey) -> None:
        self._marked.discard(key)
        try:
            self._notes.remove(key)
        except OSError as error:
            _log.error("damage_mark_stays", topic_id=key.topic_id, why=str(error))
