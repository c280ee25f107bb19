"""The shortages of controllers, as brokers and other controllers read them in the store. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.inspection.resource_pressures import ControllerPressure
from tidelog_runtime.metadata.entries_by_id import EntriesById
from tidelog_runtime.pressure.records import Pressure, decode_pressures


class ControllerPressures(EntriesById[tuple[Pressure, ...]]):
    """Pressures by controller id, kept up to date by changes of `controllers/pressures/<id>`."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix, decode_pressures)

    def described(
        self, own_id: int | None = None, own: Sequence[Pressure] = ()
    ) -> tuple[ControllerPressure, ...]:
        """Returns the pressures of all controllers, ordered by id.

        - `own`: current pressures of the controller `own_id`, which replace those in the store.
        """
        known = dict(self._entries)
        if own_id is not None:
            known[own_id] = tuple(own)
        return tuple(
            ControllerPressure(controller_id, *pressure)
            for controller_id, pressures in sorted(known.items())
            for pressure in pressures
        )
