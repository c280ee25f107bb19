"""The batches of this broker's logs that are unreadable because this disk damaged them, and the
bytes that were found there ("Damaged batches" in docs/internals/log-format.md).

`evidence/` has a file for each damaged range: a line of JSON that describes it, then its bytes. The
end of its name is the state:

- `.unreadable`: the batch is unreadable here.
- `.repaired`: the batch was copied from another replica again, or its replica is gone.
- `.cut`: the offsets of the range were not known, so that it was cut.

Only the latter two are deleted: after EVIDENCE_RETENTION_MS, or the oldest if all take more than
MAX_EVIDENCE_BYTES."""

from __future__ import annotations

import errno
import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

import structlog

from tidelog.batch import is_damaged
from tidelog.model import TopicPartition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogCorruptError
from tidelog_broker.log.quarantine import DamagedRange, Evidence
from tidelog_runtime.clock import Clock

MAX_EVIDENCE_BYTES = 256 << 20
EVIDENCE_RETENTION_MS = 30 * 24 * 3_600_000
# Of evidence that does not fit, only so many bytes are stored: more than lie under the header that
# makes the batch unreadable. The log keeps the rest. So a full disk does not keep a log closed.
MIN_EVIDENCE_BYTES = 4 << 10
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNREADABLE, _REPAIRED, _CUT = "unreadable", "repaired", "cut"
_NAME = re.compile(
    r"(?P<topic_id>[A-Za-z0-9_-]{22})\.(?P<partition>\d+)@(?P<first>\d+)-(?P<next>\d+)"
    r"\.(?P<found_ms>\d+)\.(?P<state>unreadable|repaired|cut)"
)

_log = structlog.get_logger()


class OffsetRange(NamedTuple):
    first_offset: int
    next_offset: int


class _File(NamedTuple):
    name: str
    key: ReplicaKey
    range: OffsetRange
    found_ms: int
    is_unreadable: bool


class DamagedBatches:
    """The damaged batches of all replicas, in memory and in `evidence/`.

    Evidence is stored and swept in several threads. A range is in memory before its file exists, so
    that a sweep never regards the file as repaired."""

    def __init__(self, disk: Disk, directory: PurePath, clock: Clock) -> None:
        self._disk = disk
        self._directory = directory
        self._clock = clock
        # Guards the ranges. Not held while the disk is used.
        self._lock = threading.Lock()
        # Sorted by offset.
        self._ranges: dict[ReplicaKey, list[OffsetRange]] = {}
        # Found by previous incarnations of this broker, in logs that are not open yet, or where
        # the header could not be read.
        self._former: dict[ReplicaKey, set[OffsetRange]] = {}

    def prepare(self) -> None:
        """Creates the directory and reads the file names. Raises OSError."""
        self._disk.make_directory(self._directory)
        self._disk.sync_directory(self._directory.parent)
        for file in self._files():
            if file.is_unreadable:
                self._former.setdefault(file.key, set()).add(file.range)

    def forget_missing(self, present: Collection[ReplicaKey]) -> None:
        """Forgets what previous incarnations found in replicas that are not `present` any more."""
        with self._lock:
            for key in [key for key in self._former if key not in present]:
                del self._former[key]

    def evidence_of(self, name: TopicPartition, key: ReplicaKey) -> Evidence:
        """Returns what the log of this replica calls when it makes a batch unreadable."""
        return partial(self._keep, name, key)

    def of(self, key: ReplicaKey) -> list[OffsetRange]:
        return list(self._ranges.get(key, ()))

    @property
    def count(self) -> int:
        with self._lock:
            return sum(map(len, self._ranges.values()))

    def load(self, key: ReplicaKey, log: Log) -> None:
        """Keeps what this and previous incarnations found in a log that was opened, if it is still
        unreadable. Ranges that cannot be read now are checked by the next call."""
        present = set(self._ranges.get(key, ()))
        known = present.union(self._former.get(key, ()))
        former = {r: _is_unreadable(log, r.first_offset) for r in known}
        unreadable = {r for r, is_unreadable in former.items() if is_unreadable}
        unknown = {r for r, is_unreadable in former.items() if is_unreadable is None}
        with self._lock:
            self._replace(key, unreadable | (unknown & present))
            if unknown:
                self._former[key] = unknown
            else:
                self._former.pop(key, None)

    def cut(self, key: ReplicaKey, offset: int) -> None:
        """Forgets batches at or above the offset, where the log ends from now on. The leader sends
        them again."""
        with self._lock:
            self._replace(key, (r for r in self._ranges.get(key, ()) if r.first_offset < offset))

    def keys(self) -> list[ReplicaKey]:
        with self._lock:
            return list(self._ranges)

    def restored(self, key: ReplicaKey, found: OffsetRange) -> None:
        """Forgets a range that was copied from another replica again."""
        with self._lock:
            self._replace(key, (r for r in self._ranges.get(key, ()) if r != found))

    def forget(self, key: ReplicaKey) -> None:
        with self._lock:
            self._ranges.pop(key, None)
            self._former.pop(key, None)

    def sweep(self) -> None:
        """Marks repaired ranges, and deletes the oldest of them. Blocks; raises OSError.

        Only one thread may call this at a time."""
        for file in self._files():
            if file.is_unreadable and not self._is_known(file):
                source = self._directory / file.name
                target = file.name.removesuffix(_UNREADABLE) + _REPAIRED
                self._disk.rename(source, self._directory / target)
        self._delete_old(MAX_EVIDENCE_BYTES)

    def _is_known(self, file: _File) -> bool:
        with self._lock:
            found, former = self._ranges.get(file.key, ()), self._former.get(file.key, ())
            return file.range in found or file.range in former

    def _add(self, key: ReplicaKey, found: OffsetRange) -> bool:
        """Returns False if the range was known."""
        with self._lock:
            known = self._ranges.get(key, ())
            self._replace(key, {*known, found})
            return found not in known

    def _replace(self, key: ReplicaKey, ranges: Iterable[OffsetRange]) -> None:
        """The caller holds the lock."""
        ordered = sorted(ranges)
        if ordered:
            self._ranges[key] = ordered
        else:
            self._ranges.pop(key, None)

    def _keep(
        self,
        name: TopicPartition,
        key: ReplicaKey,
        path: PurePath,
        damaged: DamagedRange,
        data: bytes,
    ) -> None:
        now_ms = self._clock.wall_ms()
        described = {
            "topic": name.topic,
            "partition": name.partition,
            "segment": path.name,
            "position": damaged.position,
            "bytes": damaged.size,
            "first_offset": damaged.first_offset,
            "next_offset": damaged.next_offset,
            "reason": damaged.reason,
            "found_at_ms": now_ms,
        }
        if self._delete_old(MAX_EVIDENCE_BYTES - len(data)) + len(data) > MAX_EVIDENCE_BYTES:
            data = data[:MIN_EVIDENCE_BYTES]
        is_cut = damaged.next_offset == damaged.first_offset
        prefix = f"{key.topic_id}.{key.partition}@{damaged.first_offset}-{damaged.next_offset}"
        state = _CUT if is_cut else _UNREADABLE
        taken = set(self._disk.list_names(self._directory)) if is_cut else ()
        while (file := f"{prefix}.{now_ms}.{state}") in taken:
            now_ms += 1
        target = self._directory / file
        line = json.dumps(described).encode() + b"\n"
        found = OffsetRange(damaged.first_offset, damaged.next_offset)
        is_added = not is_cut and self._add(key, found)
        try:
            try:
                self._disk.write_atomically(target, line + data, sync=True)
            except OSError as error:
                if error.errno not in _FULL or len(data) <= MIN_EVIDENCE_BYTES:
                    raise
                data = data[:MIN_EVIDENCE_BYTES]
                self._disk.write_atomically(target, line + data, sync=True)
        except OSError:
            if is_added:
                self.restored(key, found)  # the batch is not made unreadable
            raise

    def _delete_old(self, room_bytes: int) -> int:
        """Deletes evidence of repaired damage that is too old or does not fit.

        Returns how many bytes are left."""
        oldest_ms = self._clock.wall_ms() - EVIDENCE_RETENTION_MS
        files = sorted(self._files(), key=lambda file: file.found_ms)
        sizes = {file.name: self._size_of(file) for file in files}
        total = sum(sizes.values())
        for file in files:
            if file.is_unreadable or (file.found_ms >= oldest_ms and total <= room_bytes):
                continue
            self._disk.remove(self._directory / file.name)
            total -= sizes[file.name]
        return total

    def _size_of(self, file: _File) -> int:
        """Returns 0 if another thread has renamed or deleted the file."""
        try:
            return self._disk.file_size(self._directory / file.name)
        except FileNotFoundError:
            return 0

    def _files(self) -> Iterator[_File]:
        for name in sorted(self._disk.list_names(self._directory)):
            match = _NAME.fullmatch(name)
            if match is not None:
                yield _File(
                    name,
                    ReplicaKey(match["topic_id"], int(match["partition"])),
                    OffsetRange(int(match["first"]), int(match["next"])),
                    int(match["found_ms"]),
                    match["state"] == _UNREADABLE,
                )


def _is_unreadable(log: Log, offset: int) -> bool | None:
    """Returns None if the header of the batch cannot be read."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return False
    try:
        header = log.header_at(offset)
    except (LogCorruptError, OSError) as error:
        _log.warning("damaged_batch_not_read", log=str(log.directory), why=str(error))
        return None
    return header.base_offset == offset and is_damaged(header)
