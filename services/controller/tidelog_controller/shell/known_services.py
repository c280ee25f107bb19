"""The addresses of the cluster's services, as far as a controller knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_controller.state.context import Context
from tidelog_runtime.external_addresses import HasAddresses
from tidelog_runtime.metadata.schema import ControllerEntry, Departure


class Reign(Protocol):
    @property
    def context(self) -> Context: ...

    @property
    def departed(self) -> Mapping[int, Departure]: ...


class ServicesOfReign:
    """`own`: the controller itself, also before it is registered.

    A standby knows no brokers.
    """

    def __init__(
        self, own: ControllerEntry, roster: ControllerRoster, reign: Callable[[], Reign | None]
    ) -> None:
        self._own = own
        self._roster = roster
        self._reign = reign

    def broker(self, broker_id: int) -> HasAddresses | None:
        reign = self._reign()
        registered = reign.context.brokers.get(broker_id) if reign is not None else None
        return registered.registration if registered is not None else self.departed(broker_id)

    def departed(self, broker_id: int) -> HasAddresses | None:
        reign = self._reign()
        return reign.departed.get(broker_id) if reign is not None else None

    def controller(self, controller_id: int) -> HasAddresses | None:
        process = self._roster.process(controller_id)
        if process is not None:
            return process
        return self._own if controller_id == self._own.controller_id else None

    def all_services(self) -> Iterator[HasAddresses]:
        yield from self._roster.processes
        yield self._own
        reign = self._reign()
        if reign is not None:
            for broker in reign.context.brokers.values():
                yield broker.registration
            yield from reign.departed.values()
