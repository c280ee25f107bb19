"""What all services report about controllers, including those that do not answer."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.inspection.model import MissingController, ServiceState
from tidelog.inspection.resource_pressures import ControllerPressure


def controller_pressures(
    reporters: Iterable[ServiceState],
) -> dict[int, dict[str, ControllerPressure]]:
    """Returns pressures by controller id and resource.

    A controller's own report comes before what others have read in the store. Among those, services
    that see changes of the store come first.
    """
    found: dict[int, dict[str, ControllerPressure]] = {}
    own: dict[int, dict[str, ControllerPressure]] = {}
    for state in sorted(reporters, key=lambda s: s.store.unreachable_ms >= 0):
        told = state.controller or state.broker
        for pressure in told.controller_pressures if told is not None else ():
            found.setdefault(pressure.controller_id, {}).setdefault(pressure.resource, pressure)
        if state.controller is not None:
            reported = state.controller.controller_pressures
            own[state.id] = {p.resource: p for p in reported if p.controller_id == state.id}
    return {**found, **own}


def missing_controllers(reporters: Iterable[ServiceState]) -> list[MissingController]:
    """Returns them ordered by id."""
    found: dict[int, MissingController] = {}
    for state in reporters:
        told = state.controller or state.broker
        for missing in told.missing_controllers if told is not None else ():
            found.setdefault(missing.controller_id, missing)
    return [missing for _, missing in sorted(found.items())]
