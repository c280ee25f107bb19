"""What controllers are short of, as brokers and other controllers read it in the store. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tidelog.inspection.pressures import ControllerPressure
from tidelog_runtime.metadata.store import KeyValue
from tidelog_runtime.pressure.records import Pressure, decode_pressures


class ControllerPressures:
    """By controller id, as changes of `controllers/pressures/<id>` tell."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._pressures: dict[int, tuple[Pressure, ...]] = {}

    def clear(self) -> None:
        self._pressures.clear()

    def take(self, key: str, item: KeyValue | None) -> None:
        """Nothing for another key, or for what no controller has written."""
        number = key.removeprefix(self._prefix)
        if number == key or not number.isdecimal():
            return
        self._pressures.pop(int(number), None)
        if item is not None:
            with suppress(KeyError, TypeError, ValueError):
                self._pressures[int(number)] = decode_pressures(item.value)

    def described(
        self, own_id: int | None = None, own: Sequence[Pressure] = ()
    ) -> tuple[ControllerPressure, ...]:
        """Ordered by id. `own`: what the controller of `own_id` finds now, in place of what it has
        written."""
        known = dict(self._pressures)
        if own_id is not None:
            known[own_id] = tuple(own)
        return tuple(
            ControllerPressure(controller_id, *pressure)
            for controller_id, pressures in sorted(known.items())
            for pressure in pressures
        )
