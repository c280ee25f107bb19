"""The progress of the scrub of a broker's logs, which survives restarts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

import structlog

from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk

_KIND = "scrub-state"

_log = structlog.get_logger()


@dataclass(slots=True)
class ScrubState:
    """The progress of the scrub. Times are of the wall clock; 0: never.

    - `topic_id`, `partition`, `offset`: the replica that is being checked, and its next batch; an
      empty topic id: a pass begins.
    - `bytes_checked`, `damage_found`: in all passes.
    """

    topic_id: str = ""
    partition: int = 0
    offset: int = 0
    pass_began_ms: int = 0
    pass_bytes: int = 0
    passes: int = 0
    last_pass_began_ms: int = 0
    last_pass_ended_ms: int = 0
    last_pass_bytes: int = 0
    bytes_checked: int = 0
    damage_found: int = 0

    @property
    def key(self) -> ReplicaKey | None:
        return ReplicaKey(self.topic_id, self.partition) if self.topic_id else None


class ScrubStateFile:
    def __init__(self, disk: Disk, path: PurePath) -> None:
        self._disk = disk
        self._path = path

    def read(self) -> ScrubState:
        """Returns the state of a new pass if there is no usable file. Raises OSError."""
        try:
            value = read_checked(self._disk, self._path, _KIND)
            return ScrubState(**value) if value else ScrubState()
        except (DamagedFileError, TypeError) as error:
            _log.warning("scrub_begins_again", why=str(error))
            return ScrubState()

    def write(self, state: ScrubState) -> None:
        """Raises OSError."""
        value = {name: getattr(state, name) for name in ScrubState.__slots__}
        write_checked(self._disk, self._path, _KIND, value, sync=False)
