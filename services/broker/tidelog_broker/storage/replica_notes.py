"""Small notes about single replicas, on disk.

They are not in the directories of the replicas, because a replica's whole directory may be
missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Generic, TypeVar

from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk

_NAME = re.compile(r"(?P<topic_id>[A-Za-z0-9_-]{22})\.(?P<partition>\d+)")
T = TypeVar("T")


class ReplicaNotes(Generic[T]):
    """Notes of one kind: a small JSON file for each replica.

    `if_damaged` returns the value of an unreadable note. Every method blocks, and raises
    OSError."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        kind: str,
        if_damaged: Callable[[DamagedFileError], T],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._kind = kind
        self._if_damaged = if_damaged

    def prepare(self) -> None:
        self._disk.make_directory(self._directory)
        self._disk.sync_directory(self._directory.parent)

    def read(self) -> dict[ReplicaKey, T]:
        notes = {}
        for name in sorted(self._disk.list_names(self._directory)):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            try:
                note = read_checked(self._disk, self._directory / name, self._kind)
            except DamagedFileError as error:
                note = self._if_damaged(error)
            notes[ReplicaKey(match["topic_id"], int(match["partition"]))] = note
        return notes

    def write(self, key: ReplicaKey, note: T) -> None:
        """Writes a note. On disk on return."""
        write_checked(self._disk, self._path(key), self._kind, note, sync=True)

    def remove(self, key: ReplicaKey) -> None:
        """Removes a note without a sync. It may reappear, which has to be harmless."""
        self._disk.remove(self._path(key))

    def _path(self, key: ReplicaKey) -> PurePath:
        return self._directory / f"{key.topic_id}.{key.partition}"
