"""One fsync of a log, which may run in a thread while the log goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from tidelog_broker.log.disk import Disk, DiskFile
from tidelog_broker.log.leader_epochs import EpochEntry


class FlushState(NamedTuple):
    """What else a flush makes durable, as it stood when the flush began. `cuts` counts
    truncations: after one, the same offsets mean other batches."""

    cuts: int
    epochs: tuple[EpochEntry, ...]
    names_changed: int


class FlushTicket:
    """Made by `Log.begin_flush`; `run` it once, then hand it to `Log.finish_flush`.

    The files are held open here, so that neither a roll nor a deletion disturbs it.
    They are handles of its own: since Linux 4.19 a write-back error that nobody has seen
    yet is reported to those as well."""

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
        self.done = False
        self.error: OSError | None = None

    def run(self) -> None:
        """Blocks until all is on the disk. An `OSError` is kept for `finish_flush`."""
        try:
            for file in self._files:
                file.sync()
            for directory in self._directories:
                self._disk.sync_directory(directory)
        except OSError as error:
            self.error = error
        finally:
            for file in self._files:
                file.close()
        self.done = True
