"""One offset for each partition of a data directory: high watermarks, or recovery points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from tidelog_broker.log.checked_file import (
    DamagedFileError,
    read_checked,
    write_checked_with_id,
)
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.file_id import FileId

# In the directory of the data.
HIGH_WATERMARKS = "high-watermarks"
RECOVERY_POINTS = "recovery-points"
_KIND = "offset-checkpoint"

TopicIdPartition = tuple[str, int]
Key = TypeVar("Key", bound=TopicIdPartition)


class CheckpointContent(NamedTuple):
    """`damage` says why a file that exists could not be used; it then counts as empty. `file`:
    as which it was written; None: by an older release, or there is none."""

    offsets: dict[TopicIdPartition, int]
    damage: str | None
    file: FileId | None = None


class OffsetCheckpoint:
    """An old checkpoint is safe: offsets in it are only ever too low, unless a log was cut
    since, which is for `storage.checkpoints` to remember."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self._disk = disk
        self._path = path

    def read(self) -> CheckpointContent:
        try:
            value = read_checked(self._disk, self._path, _KIND)
        except DamagedFileError as error:
            return CheckpointContent({}, str(error))
        topics, file = _parts(value or {})
        offsets = {
            (topic_id, int(partition)): offset
            for topic_id, partitions in topics.items()
            for partition, offset in partitions.items()
        }
        return CheckpointContent(offsets, None, file)

    def write(self, offsets: Mapping[Key, int], *, sync: bool = True) -> None:
        """Replaces all; raises `OSError`. May run in a thread, one at a time.

        The file names itself: of all files it is the one that changes with what is appended, so
        that it tells a directory that was restored in place from an older copy."""
        topics: dict[str, dict[str, int]] = {}
        for (topic_id, partition), offset in offsets.items():
            topics.setdefault(topic_id, {})[str(partition)] = offset
        write_checked_with_id(
            self._disk,
            self._path,
            _KIND,
            lambda file: {"file": file, "topics": topics},
            sync=sync,
        )


def _parts(value: Mapping[str, Any]) -> tuple[Mapping[str, Mapping[str, int]], FileId | None]:
    """Older releases wrote the topics alone, by ids that are longer than these names."""
    if "file" not in value:
        return value, None
    return value["topics"], FileId.from_json(value["file"])
