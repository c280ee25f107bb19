"""What a backup holds, as values, and their form in `manifest.json`. No I/O.

Offsets and epochs are those of the cluster that was backed up. Ranges exclude their end.
"""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from crc32c import crc32c

from tidelog.model import NO_EPOCH, TopicPartition

FORMAT = "tidelog-backup"
VERSION = 1
# A manifest beyond this size is not read into memory. A partition takes about 500 bytes, a segment
# 150, a fence 10.
MAX_MANIFEST_BYTES = 256 << 20

_Value = TypeVar("_Value")


class BackupError(Exception):
    """A directory holds no usable backup, or not the one that a command needs. The message says
    what to do."""


class GapReason(enum.StrEnum):
    """Why records of a range are not in a backup.

    DAMAGED: no replica could read them any more. REMOVED: retention removed them before they were
    copied.
    """

    DAMAGED = "damaged"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Gap:
    first_offset: int
    next_offset: int
    reason: GapReason


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file. `headers_crc32c`: CRC32C of all its frame headers, which hold the checksums
    of everything else. `records` counts fences and damaged records, too."""

    base_offset: int
    next_offset: int
    size_bytes: int
    batches: int
    records: int
    headers_crc32c: int


@dataclass(frozen=True, slots=True)
class PartitionBackup:
    """The batches of one partition from `start_offset` to `next_offset`.

    - `high_watermark`, `leader_epoch`: where the backup was to end, as the leader of that epoch
      reported. `next_offset` is there or, after the last batch, beyond; below it if `error` is set.
    - `last_epoch`: leader epoch of the batch before `next_offset`; NO_EPOCH: none was copied, or it
      is damaged.
    - `fences`: offsets of producer fences. Readers skip them, and a restore leaves them out.
    - `error`: why not everything was copied; empty: everything was. With NO_EPOCH as
      `leader_epoch` the partition had no leader, and nothing of it is known.
    """

    partition: int
    start_offset: int
    next_offset: int
    high_watermark: int
    leader_epoch: int
    last_epoch: int = NO_EPOCH
    segments: tuple[Segment, ...] = ()
    gaps: tuple[Gap, ...] = ()
    fences: tuple[int, ...] = ()
    error: str = ""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def records(self) -> int:
        """Number of records that a restore writes."""
        missing = sum(gap.next_offset - gap.first_offset for gap in self.gaps)
        return self.next_offset - self.start_offset - missing - len(self.fences)


@dataclass(frozen=True, slots=True)
class TopicBackup:
    """A topic. `config`: the keys that were set for it."""

    topic: str
    topic_id: str
    partition_count: int
    replication_factor: int
    config: Mapping[str, str]
    partitions: tuple[PartitionBackup, ...]

    def named(self) -> Iterator[tuple[TopicPartition, PartitionBackup]]:
        for partition in self.partitions:
            yield TopicPartition(self.topic, partition.partition), partition


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of the cluster that belong to no topic and no broker.

    - `moves_bytes_per_second`: limit on the bandwidth of moves; None: no limit.
    """

    moves_bytes_per_second: int | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup. Times are milliseconds since 1970 (UTC).

    - `backup_id`: 22 characters of base64url; updates of the backup keep it.
    - `patterns`: the requested topics.
    - `captured_at_ms`: when the high watermarks were read.
    - `settings`: None: not known, because no controller answered, or an earlier release made the
      backup.
    """

    backup_id: str
    cluster_id: str
    tidelog_version: str
    patterns: tuple[str, ...]
    created_at_ms: int
    captured_at_ms: int
    ended_at_ms: int
    topics: tuple[TopicBackup, ...]
    settings: ClusterSettings | None = None

    def topic(self, name: str) -> TopicBackup | None:
        return next((topic for topic in self.topics if topic.topic == name), None)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionBackup]]:
        for topic in self.topics:
            yield from topic.named()

    @property
    def failures(self) -> list[tuple[TopicPartition, str]]:
        """Partitions that were not copied up to their high watermark, and why."""
        return [(name, found.error) for name, found in self.partitions() if found.error]

    @property
    def is_complete(self) -> bool:
        """Whether every partition was copied up to its high watermark. Gaps do not count: no run
        can fill them."""
        return not self.failures

    @property
    def gaps(self) -> list[tuple[TopicPartition, Gap]]:
        return [(name, gap) for name, found in self.partitions() for gap in found.gaps]


def encode_manifest(manifest: Manifest) -> bytes:
    content = asdict(manifest)
    document = {
        "format": FORMAT,
        "version": VERSION,
        # For people and scripts; backups of earlier releases lack it.
        "complete": manifest.is_complete,
        "crc32c": _checksum(content),
        "backup": content,
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def decode_manifest(data: bytes, source: object) -> Manifest:
    """Raises `BackupError`. `source`: the file, for its message."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BackupError(f"{source} is no manifest of a backup: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BackupError(f'{source} is no manifest of a backup: it lacks "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise BackupError(
            f"{source} has version {document.get('version')!r}; this release reads {VERSION}"
        )
    content = document.get("backup")
    if document.get("crc32c") != _checksum(content):
        raise BackupError(f"{source} is damaged: its checksum does not match; use another copy")
    try:
        found: Manifest = _decoded(Manifest, content)
    except (KeyError, TypeError, ValueError) as error:
        raise BackupError(f"{source} is no manifest of a backup: {error!r}") from error
    if document.get("complete", found.is_complete) is not found.is_complete:
        raise BackupError(
            f'{source} is damaged: it has "complete": {document["complete"]!r}, which its '
            "partitions contradict; use another copy"
        )
    return found


def _checksum(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{crc32c(text.encode()):08x}"


def _decoded(kind: Any, value: Any) -> Any:
    """Returns a value of `kind`. Raises KeyError, TypeError and ValueError."""
    origin = get_origin(kind)
    if origin is types.UnionType:
        (other,) = set(get_args(kind)) - {types.NoneType}
        return None if value is None else _decoded(other, value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        # Backups of earlier releases lack fields with the default None.
        present = [f for f in fields(kind) if f.name in value or f.default is not None]
        return kind(**{f.name: _decoded(hints[f.name], value[f.name]) for f in present})
    if origin is tuple:
        return tuple(_decoded(get_args(kind)[0], item) for item in _checked(list, value))
    if origin is Mapping:
        return {_checked(str, key): _checked(str, text) for key, text in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    return _checked(kind, value)


def _checked(kind: type[_Value], value: Any) -> _Value:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value
