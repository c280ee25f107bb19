"""One offset for each partition of a data directory: high watermarks, or recovery points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple, TypeVar

from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk

_KIND = "offset-checkpoint"

TopicIdPartition = tuple[str, int]
Key = TypeVar("Key", bound=TopicIdPartition)


class CheckpointContent(NamedTuple):
    """`damage` says why a file that exists could not be used; it then counts as empty."""

    offsets: dict[TopicIdPartition, int]
    damage: str | None


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
        topics: Mapping[str, Mapping[str, int]] = value or {}
        offsets = {
            (topic_id, int(partition)): offset
            for topic_id, partitions in topics.items()
            for partition, offset in partitions.items()
        }
        return CheckpointContent(offsets, None)

    def write(self, offsets: Mapping[Key, int], *, sync: bool = True) -> None:
        """Replaces all; raises `OSError`. May run in a thread, one at a time."""
        topics: dict[str, dict[str, int]] = {}
        for (topic_id, partition), offset in offsets.items():
            topics.setdefault(topic_id, {})[str(partition)] = offset
        write_checked(self._disk, self._path, _KIND, topics, sync=sync)
