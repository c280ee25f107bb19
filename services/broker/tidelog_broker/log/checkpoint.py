"""Files with one offset for each partition of a data directory: high watermarks, or recovery
points."""

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

# File names in the data directory.
HIGH_WATERMARKS = "high-watermarks"
RECOVERY_POINTS = "recovery-points"
_KIND = "offset-checkpoint"

TopicIdPartition = tuple[str, int]
Key = TypeVar("Key", bound=TopicIdPartition)


class CheckpointContent(NamedTuple):
    """The content of a checkpoint file.

    - `damage`: why an existing file could not be used; it then counts as empty.
    - `file`: the id that the file had when it was written; None: there is no file, or an older
      release wrote it.
    """

    offsets: dict[TopicIdPartition, int]
    damage: str | None
    file: FileId | None = None


class OffsetCheckpoint:
    """One checkpoint file. An old one is safe, because its offsets are only ever too low.

    After a log was cut they may be too high; `storage.checkpoints` handles that."""

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
        """Replaces the content; raises `OSError`. May run in a thread, one call at a time.

        The file contains its own id. It is the file that changes with every append, so that it
        reveals a directory that was restored in place from an older copy."""
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
    """Returns the topics and the file id. Older releases wrote only the topics, by ids that are
    longer than these two keys."""
    if "file" not in value:
        return value, None
    return value["topics"], FileId.from_json(value["file"])
