"""The cluster's feature level, and which levels its controllers support, as the store has them."""

from __future__ import annotations

from tidelog.feature_levels import FIRST_LEVEL, SUPPORTED, LevelRange
from tidelog_runtime.metadata.keys import (
    ClusterKey,
    ControllerProcessKey,
    LastRegistrationKey,
    ParsedKey,
)
from tidelog_runtime.metadata.schema import (
    ClusterEntry,
    ControllerProcess,
    decode_cluster,
    decode_controller_process,
)
from tidelog_runtime.metadata.store import KeyValue


class KnownLevels:
    """Levels as of the last absorbed change.

    - `own`: the levels that this controller supports.
    - `cluster`: None: the key is gone.
    - `revision`: the modification revision of the cluster's key; 0: it is gone.
    - `registered_revision`: that of the mark that each registration leaves; 0: there is none.
    - `controllers`: all that are registered, by id.
    """

    def __init__(self) -> None:
        self.own: LevelRange = SUPPORTED
        self.cluster: ClusterEntry | None = None
        self.revision = 0
        self.registered_revision = 0
        self.controllers: dict[int, ControllerProcess] = {}

    @property
    def level(self) -> int:
        return FIRST_LEVEL if self.cluster is None else self.cluster.format_version

    def absorb(self, key: ParsedKey | None, value: KeyValue | None) -> None:
        """Applies a change; ignores other keys. Raises ValueError, KeyError or TypeError for a
        malformed value."""
        match key:
            case ClusterKey():
                self.cluster = None if value is None else decode_cluster(value.value)
                self.revision = 0 if value is None else value.mod_revision
            case LastRegistrationKey():
                self.registered_revision = 0 if value is None else value.mod_revision
            case ControllerProcessKey(controller_id):
                self.controllers.pop(controller_id, None)
                if value is not None:
                    self.controllers[controller_id] = decode_controller_process(value.value)
            case _:
                pass
