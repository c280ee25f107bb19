"""Producer states of a log, and their snapshots beside its segments ("Log on disk" in
docs/internals/log-format.md).

A snapshot `<offset>.producers` holds the producer states after all batches below the offset. The
batches behind it are read from their headers.

- There is a snapshot at the start of each segment, and one for each SNAPSHOT_INTERVAL_BYTES of the
  active segment. So neither a start nor a truncation reads more than that.
- A clean stop writes one at the log's end if the states are not stored with those of other logs, or
  if the newest snapshot is far behind.
- The snapshot at the log's start is synced and written twice (`<offset>.producers-copy`). The
  batches below it are deleted, so that only this snapshot knows silent producers. Each start reads
  both files and repairs a damaged one from the other.
- A truncation first removes the snapshots above its offset, durably. So every snapshot describes
  batches that are in the log now.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Protocol

import structlog

from tidelog.log_format import OFFSET_DIGITS
from tidelog.model import Batch, BatchHeader
from tidelog_broker.core.partition.producer_state import NOBODY, CrowdedOut, ProducerStates
from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log_errors import LogStorageError

SNAPSHOT_SUFFIX = ".producers"
COPY_SUFFIX = ".producers-copy"
SNAPSHOT_INTERVAL_BYTES = 16 << 20
# A snapshot takes about 200 bytes for each producer. With many producers it is written less often,
# so that snapshots amount to about 1% of the appended bytes at most.
SNAPSHOT_INTERVAL_BYTES_PER_PRODUCER = 20 << 10
# A clean stop stores the producers of many logs in one file. A log with more producers than this,
# or with more bytes after its newest snapshot, writes a snapshot of its own.
MAX_PRODUCERS_IN_SHARED_FILE = 1_000
MAX_BYTES_WITHOUT_SNAPSHOT = 1 << 20
_KIND = "producer-states"

_log = structlog.get_logger()


class HeaderSource(Protocol):
    """The log that the producer states belong to."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def headers(self, start: int, end: int) -> Iterator[BatchHeader]:
        """Yields the headers of the batches between two offsets.

        Raises `LogCorruptError` and `OSError`."""

    def bytes_from(self, offset: int) -> int: ...


def snapshot_name(offset: int, suffix: str = SNAPSHOT_SUFFIX) -> str:
    return f"{offset:0{OFFSET_DIGITS}d}{suffix}"


class ProducerHistory:
    """The producer states of one log. `OSError` passes through in methods that only `Log` calls.

    - `states`: those at the log's end.
    - `lacking`: the log is empty and was reset to an offset above 0, and the producers that wrote
      below are not known yet, or the file that names them is damaged. It survives a restart.
    - `lost`: the log has batches, and the producers that wrote below its start are unknown.
    """

    def __init__(self, disk: Disk, directory: PurePath, log: HeaderSource) -> None:
        self._disk = disk
        self._directory = directory
        self._log = log
        self._offsets: list[int] = []  # of the snapshots on disk, sorted
        self._bytes_since_snapshot = 0
        self.states = ProducerStates()
        self.lacking = False
        self.lost = False
        self._crowded_out = NOBODY

    def load(self, at_end: Any = None) -> None:
        """Loads the states when the log is opened, after its batches are known.

        `at_end` is what `snapshot_at_end` returned for this very log; None: the states are read.
        Raises `LogCorruptError` if a batch that has to be read is damaged: a leader with incomplete
        states would append duplicates."""
        start, end = self._log.log_start_offset, self._log.log_end_offset
        found = sorted(set(_offsets_in(self._disk.list_names(self._directory))))
        self._remove(offset for offset in found if not start <= offset <= end)
        if found and found[-1] > end:
            # Otherwise a crash could bring it back above batches that are appended now.
            self._disk.sync_directory(self._directory)
        self._offsets = [offset for offset in found if start <= offset <= end]
        if start > 0:
            self.lost = not self._repair_start_snapshot(start) and start < end
        if 0 < start == end:
            value = self._read(start)
            # No other file names the producers below the start.
            self.lacking = value is None or value["lacking"]
        # A snapshot at the end is newer than `at_end`, or equal.
        known = at_end is not None and not (self.lacking or self.lost or end in self._offsets)
        self.states = ProducerStates.of_value(at_end) if known else self._states_at(end)

    def appended(self, batches: Sequence[Batch], size: int) -> None:
        """Applies batches, of `size` bytes together, that were appended to the log.

        Raises nothing: a snapshot that cannot be written only makes a later read longer."""
        states = self.states
        # Excludes evictions that reading the log has repeated.
        states.crowded_out = NOBODY
        for batch in batches:
            states.note(batch.header)
        self._crowded_out = self._crowded_out.and_(states.crowded_out)
        self.lacking = False
        self._bytes_since_snapshot += size
        interval = max(
            SNAPSHOT_INTERVAL_BYTES, len(self.states) * SNAPSHOT_INTERVAL_BYTES_PER_PRODUCER
        )
        if self._bytes_since_snapshot >= interval:
            self._bytes_since_snapshot = 0
            try:
                self._write(self._log.log_end_offset, self.states)
            except OSError as error:
                _log.warning("producer_snapshot_not_written", why=str(error))

    def roll(self, bases: Collection[int]) -> None:
        """Prepares for a new segment at the log's end.

        `bases` are the base offsets of the present segments. Snapshots at other offsets are
        removed."""
        end = self._log.log_end_offset
        self._write_end_snapshot()
        self._bytes_since_snapshot = 0
        self._forget(offset for offset in self._offsets if offset not in bases and offset != end)

    def begin_cut(self, offset: int) -> None:
        """Removes later snapshots before the log is cut at the offset and its directory is
        synced."""
        self._forget(one for one in self._offsets if one > offset)

    def finish_cut(self) -> None:
        self.states = self._states_at(self._log.log_end_offset)

    def restored(self, batches: Sequence[Batch]) -> None:
        """Applies batches that were unreadable and are in the log again.

        A batch changes nothing for a producer that is known to have written later ones."""
        for header in (batch.header for batch in batches):
            known = self.states.entry(header.producer_id)
            if known is None or known.end_offset <= header.base_offset:
                self.states.note(header)
        if self.lacking:
            return
        try:
            # The newest snapshot may have been written without these batches.
            self._write(self._log.log_end_offset, self.states)
        except OSError as error:
            _log.warning("producer_snapshot_not_written", why=str(error))

    def begin_reset(self, offset: int) -> None:
        """Prepares for emptying the log, which then begins at the offset.

        On disk on return. It has no effect if the log is not emptied after all."""
        if offset > 0:
            self._write_twice(offset, {"lacking": True, "producers": []})

    def finish_reset(self, offset: int) -> None:
        """Completes a reset after the new log start is stored, before the directory is synced."""
        self._remove(one for one in self._offsets if one != offset)
        self._offsets = [offset] if offset > 0 else []
        self.states = ProducerStates()
        self.lacking, self.lost = offset > 0, False

    def begin_deletion(self, start: int) -> None:
        """Writes a snapshot at `start` before the batches below are deleted. On disk on return."""
        self._write_synced(start, self._states_at(start))

    def finish_deletion(self) -> None:
        start = self._log.log_start_offset
        self._forget(offset for offset in self._offsets if offset < start)
        self.lost = False  # nothing more will ever be known

    def snapshot_at_end(self, max_producers: int) -> Any:
        """Returns the producers at the log's end, for `load`.

        Returns None if they are not known, or if there are more of them than `max_producers`;
        then a snapshot holds them."""
        if self.lacking or self.lost:
            return None
        newest = self._offsets[-1] if self._offsets else self._log.log_start_offset
        too_many = len(self.states) > min(max_producers, MAX_PRODUCERS_IN_SHARED_FILE)
        if too_many or self._log.bytes_from(newest) > MAX_BYTES_WITHOUT_SNAPSHOT:
            self._write_end_snapshot()
        return None if too_many else self.states.to_value()

    def take_crowded_out(self) -> CrowdedOut:
        """Returns the producers that appends evicted since the last call."""
        taken, self._crowded_out = self._crowded_out, NOBODY
        return taken

    def below_start(self) -> ProducerStates:
        """Returns the states of producers that wrote below the log's start, as far as they are
        known.

        Raises `LogStorageError`."""
        try:
            return self._states_at(self._log.log_start_offset)
        except OSError as error:
            raise LogStorageError.of(error, self._directory, "read a snapshot in") from error

    def adopt_below_start(self, states: ProducerStates) -> None:
        """Stores the producers that wrote below the start of a log that is `lacking` and empty.

        On disk on return. Raises `LogStorageError`."""
        try:
            self._write_synced(self._log.log_end_offset, states)
        except OSError as error:
            raise LogStorageError.of(error, self._directory, "write a snapshot in") from error
        self.states = states
        self.lacking = self.lost = False

    def _write_end_snapshot(self) -> None:
        """Writes a snapshot at the log's end unless there is one. An existing one is equal, and may
        be the synced snapshot of the log's start."""
        if self._log.log_end_offset not in self._offsets and not self.lacking:
            self._write(self._log.log_end_offset, self.states)

    def _states_at(self, offset: int) -> ProducerStates:
        """Returns the states from the newest valid snapshot up to `offset` and the batches after
        it."""
        position, states = self._log.log_start_offset, ProducerStates()
        for known in reversed(self._offsets[: bisect.bisect_right(self._offsets, offset)]):
            value = self._read(known)
            if value is not None and not value["lacking"]:
                position, states = known, ProducerStates.of_value(value)
                break
        for header in self._log.headers(position, offset):
            states.note(header)
        return states

    def _repair_start_snapshot(self, start: int) -> bool:
        """Repairs one of the two snapshots at the log's start from the other.

        Returns False and logs an error if neither is valid. Then the log treats producers that
        wrote only below its start as new."""
        paths = self._both_paths(start)
        values = [self._read_file(path) for path in paths]
        sound = [value for value in values if value is not None]
        if not sound:
            _log.error(
                "producers_below_start_lost",
                log=str(self._directory),
                log_start_offset=start,
                why="both snapshots of the producers below the log start are missing or damaged",
                fix="check the disk; the replica is copied again if other replicas exist",
            )
        elif len(sound) < len(values):
            bad = paths[values.index(None)]
            try:
                write_checked(self._disk, bad, _KIND, sound[0], sync=True)
            except OSError as error:
                _log.warning("producer_snapshot_not_mended", path=str(bad), why=str(error))
        return bool(sound)

    def _read(self, offset: int) -> Any:
        """Returns None if there is no valid file."""
        for path in self._both_paths(offset):
            value = self._read_file(path)
            if value is not None:
                return value
        return None

    def _read_file(self, path: PurePath) -> Any:
        try:
            return read_checked(self._disk, path, _KIND)
        except DamagedFileError as damage:
            _log.warning("producer_snapshot_damaged", why=str(damage))
            return None

    def _write(self, offset: int, states: ProducerStates) -> None:
        write_checked(self._disk, self._path(offset), _KIND, _value(states), sync=False)
        self._note(offset)

    def _write_synced(self, offset: int, states: ProducerStates) -> None:
        """Writes a snapshot that no batches can replace: in two files, on disk on return."""
        self._write_twice(offset, _value(states))
        self._note(offset)

    def _write_twice(self, offset: int, value: Any) -> None:
        for path in self._both_paths(offset):
            write_checked(self._disk, path, _KIND, value, sync=True)

    def _note(self, offset: int) -> None:
        if offset not in self._offsets:
            bisect.insort(self._offsets, offset)

    def _forget(self, offsets: Iterable[int]) -> None:
        gone = list(offsets)
        self._remove(gone)
        self._offsets = [offset for offset in self._offsets if offset not in gone]

    def _remove(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            for path in self._both_paths(offset):
                self._disk.remove(path)

    def _path(self, offset: int) -> PurePath:
        return self._directory / snapshot_name(offset)

    def _both_paths(self, offset: int) -> list[PurePath]:
        return [self._path(offset), self._directory / snapshot_name(offset, COPY_SUFFIX)]


def _value(states: ProducerStates) -> Any:
    return {"lacking": False, **states.to_value()}


def _offsets_in(names: Iterable[str]) -> Iterator[int]:
    for name in names:
        digits = name.removesuffix(SNAPSHOT_SUFFIX).removesuffix(COPY_SUFFIX)
        offset = int(digits) if digits.isdecimal() else None
        if offset is not None and name in (
            snapshot_name(offset),
            snapshot_name(offset, COPY_SUFFIX),
        ):
            yield offset
