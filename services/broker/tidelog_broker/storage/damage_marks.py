"""Which replicas of a data directory are known to be damaged, on disk.

A mark stands from before anything sound of the replica is cut until the metadata store
has it that the replica is not whole, and the log has been checked (interleavings 2 and 9
of ARCHITECTURE.md). It lies beside the replicas and not within one, because a replica's whole
directory may be what is missing.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk
from tidelog_broker.partition.replica_key import ReplicaKey

_KIND = "damage-mark"
_NAME = re.compile(r"(?P<topic_id>[A-Za-z0-9_-]{22})\.(?P<partition>\d+)")


class DamageMarks:
    """Every method blocks, and raises OSError."""

    def __init__(self, disk: Disk, data_dir: PurePath) -> None:
        self._disk = disk
        self._directory = data_dir / "damaged"

    def prepare(self) -> None:
        self._disk.make_directory(self._directory)
        self._disk.sync_directory(self._directory.parent)

    def read(self) -> dict[ReplicaKey, str]:
        """Why each is damaged. A mark that is damaged itself is a mark."""
        marks = {}
        for name in sorted(self._disk.list_names(self._directory)):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            try:
                reason = read_checked(self._disk, self._directory / name, _KIND)
            except DamagedFileError as error:
                reason = str(error)
            marks[ReplicaKey(match["topic_id"], int(match["partition"]))] = reason
        return marks

    def write(self, key: ReplicaKey, reason: str) -> None:
        """On the disk on return."""
        write_checked(self._disk, self._path(key), _KIND, reason, sync=True)

    def remove(self, key: ReplicaKey) -> None:
        """Not synced: a mark that comes back makes a replica resign once more, no worse."""
        self._disk.remove(self._path(key))

    def _path(self, key: ReplicaKey) -> PurePath:
        return self._directory / f"{key.topic_id}.{key.partition}"
