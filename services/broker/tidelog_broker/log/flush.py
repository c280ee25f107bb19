"""Tracks how much of a log is on disk. One fsync of it may run in a thread while the log is in
use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from tidelog_broker.log.disk import Disk, DiskFile
from tidelog_broker.log.epoch_file import EpochFile
from tidelog_broker.log.leader_epochs import EpochEntry
from tidelog_broker.log.segments import Segments

# Each of these segments is held open while it is synced.
MAX_FLUSHED_SEGMENTS = 16


class FlushState(NamedTuple):
    """What else a flush makes durable, as it was when the flush began.

    - `cuts`: the number of truncations. After one, the same offsets mean other batches.
    """

    cuts: int
    epochs: tuple[EpochEntry, ...]
    names_changed: int


class FlushTicket:
    """One flush. `Log.begin_flush` creates it; call `run` once, then pass it to
    `Log.finish_flush`.

    It holds its files open, so that neither a roll nor a deletion disturbs it. The handles are
    its own: since Linux 4.19 a new handle also gets a write-back error that has not been reported
    yet."""

    def __init__(
        self,
        disk: Disk,
        files: Sequence[DiskFile],
        directories: Sequence[PurePath],
        *,
        up_to: int,
        state: FlushState,
    ) -> None:
        self._disk = disk
        self._files = files
        self._directories = directories
        self.up_to = up_to
        self.state = state
        # How many files and directories are on disk. A thread that does not return from the next
        # one hangs, however many it has synced before.
        self.steps_done = 0
        self.done = False
        self.error: OSError | None = None

    def run(self) -> None:
        """Blocks until all is on disk. An `OSError` is kept for `finish_flush`."""
        try:
            for file in self._files:
                file.sync()
                self.steps_done += 1
            for directory in self._directories:
                self._disk.sync_directory(directory)
                self.steps_done += 1
        except OSError as error:
            self.error = error
        finally:
            for file in self._files:
                file.close()
        self.done = True


class FlushProgress:
    """What is on disk: batches below `flushed_offset`, leader epochs, names of files."""

    def __init__(self, flushed_offset: int, epochs: tuple[EpochEntry, ...]) -> None:
        self.flushed_offset = flushed_offset
        # Tickets that are not finished. Some never will be, because their waiting task was
        # cancelled.
        self._begun: list[FlushTicket] = []
        self._cuts = 0
        self._name_synced = True  # the directory's own name is on disk
        # How many file names were created or removed, and how many of those changes a flush has
        # made durable. The same for epochs.
        self._names_changed = 0
        self._names_synced = 0
        self._epochs_synced = epochs

    def mark_unsynced(self, flushed_offset: int) -> None:
        """Counts what a previous process wrote beyond the offset as not synced, also names and
        epochs."""
        self.flushed_offset = flushed_offset
        self._names_changed += 1
        self._name_synced = False
        self._epochs_synced = ()

    def name_changed(self) -> None:
        self._names_changed += 1

    def begin_cut(self) -> None:
        self._cuts += 1

    def is_behind(self, log_end_offset: int, epochs: tuple[EpochEntry, ...]) -> bool:
        """Returns whether anything is not on disk, or not known to be."""
        return (
            self.flushed_offset < log_end_offset
            or self._has_unsynced_names
            or not self._name_synced
            or bool(self._begun)
            or self._has_unsynced(epochs)
        )

    @property
    def _has_unsynced_names(self) -> bool:
        return self._names_changed != self._names_synced

    def _has_unsynced(self, epochs: tuple[EpochEntry, ...]) -> bool:
        return bool(epochs) and epochs != self._epochs_synced

    def begin(
        self,
        disk: Disk,
        directory: PurePath,
        segments: Segments,
        epoch_file: EpochFile,
        epochs: tuple[EpochEntry, ...],
    ) -> FlushTicket | None:
        """Implements `Log.begin_flush`. Raises OSError, with no file left open."""
        state = FlushState(self._cuts, epochs, self._names_changed)
        unsynced = segments.unsynced(self.flushed_offset, MAX_FLUSHED_SEGMENTS)
        directories: list[PurePath] = []
        if self._has_unsynced_names:
            directories.append(directory)
        if not self._name_synced:
            directories.append(directory.parent)
        opened: list[DiskFile] = []
        try:
            opened.extend(disk.open(segment.path) for segment in unsynced)
            if self._has_unsynced(epochs):
                opened.append(epoch_file.open())
        except OSError:
            for file in opened:
                file.close()
            raise
        if not opened and not directories:
            return None
        up_to = unsynced[-1].next_offset if unsynced else self.flushed_offset
        ticket = FlushTicket(disk, opened, directories, up_to=up_to, state=state)
        self._begun.append(ticket)
        return ticket

    @property
    def unfinished(self) -> Sequence[FlushTicket]:
        return self._begun

    def discard(self, ticket: FlushTicket) -> None:
        """Removes a ticket whose result is known."""
        self._begun.remove(ticket)

    def finish(self, ticket: FlushTicket) -> None:
        """Records a flush that has run without an error."""
        cuts, epochs, names = ticket.state
        self._names_synced = max(self._names_synced, names)
        self._name_synced = True
        if cuts == self._cuts:
            self._epochs_synced = epochs
            self.flushed_offset = max(self.flushed_offset, ticket.up_to)
