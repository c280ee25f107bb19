"""Replica directories that were set aside, until they are deleted."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk
from tidelog_broker.storage.replica_directories import REPLICA_NAME
from tidelog_runtime.clock import Clock

_NAME = re.compile(REPLICA_NAME.pattern + r"@(?P<since_ms>\d+)(\.\d+)?")


class Stray(NamedTuple):
    """A replica directory that was set aside.

    - `since_ms`: wall-clock time at which it was set aside; 0: a command deleted it.
    - `by_previous_incarnation`: by a previous process, which may have died before it
      reported the stray.
    """

    key: ReplicaKey
    name: TopicPartition
    directory: str
    since_ms: int = 0
    by_previous_incarnation: bool = False


class Strays:
    """The directories in `strays/`. The suffix of a name is `@` and the time in milliseconds since
    1970 from which the directory waits. All methods except `now_ms` block, and raise OSError."""

    def __init__(self, disk: Disk, path: PurePath, clock: Clock) -> None:
        self._disk = disk
        self._path = path
        self._clock = clock
        # Names that previous processes left.
        self._left: frozenset[str] = frozenset()
        self._names: set[str] = set()

    def prepare(self) -> None:
        """Creates the directory, or reads the names of what previous processes left in it."""
        self._disk.make_directory(self._path)
        self._left = frozenset(self._disk.list_names(self._path))
        self._names = set(self._left)

    def now_ms(self) -> int:
        """Returns the time by which strays are dated and deleted."""
        return self._clock.wall_ms()

    def keys(self) -> set[ReplicaKey]:
        moved = map(REPLICA_NAME.match, self._disk.list_names(self._path))
        return {ReplicaKey(m["topic_id"], int(m["partition"])) for m in moved if m is not None}

    def add(self, replica: PurePath, since_ms: int) -> None:
        """Moves a replica directory here."""
        # Never the name of an earlier stray, which may be deleted at this moment.
        stray, same = (name := f"{replica.name}@{since_ms}"), 0
        while stray in self._names:
            same += 1
            stray = f"{name}.{same}"
        self._disk.rename(replica, self._path / stray)
        self._names.add(stray)

    def expired(self, kept_ms: int) -> list[Stray]:
        """Returns strays that were set aside for `kept_ms`."""
        now_ms = self.now_ms()
        strays = []
        for directory in sorted(self._disk.list_names(self._path)):
            match = _NAME.fullmatch(directory)
            if match is not None and int(match["since_ms"]) + kept_ms <= now_ms:
                name = TopicPartition(match["topic"], int(match["partition"]))
                key = ReplicaKey(match["topic_id"], name.partition)
                since_ms, is_left = int(match["since_ms"]), directory in self._left
                strays.append(Stray(key, name, directory, since_ms, is_left))
        return strays

    def delete(self, stray: Stray) -> None:
        self._disk.remove_tree(self._path / stray.directory)
        self._names.discard(stray.directory)
