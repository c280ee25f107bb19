"""Addresses of brokers and controllers for clients outside the brokers' network (KIP-103).

A service with `external_listen` registers two addresses. A client that connects through an
external listener gets the external address of every service that has one, and the normal
address of every other service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class HasAddresses(Protocol):
    """A service as it is or was last registered. `external_address` empty: it has none."""

    @property
    def address(self) -> str: ...

    @property
    def external_address(self) -> str: ...


class KnownServices(Protocol):
    """The services as they are known now; None: the service is not known."""

    def broker(self, broker_id: int) -> HasAddresses | None:
        """Returns the broker's current incarnation, or else its last one."""

    def departed(self, broker_id: int) -> HasAddresses | None:
        """Returns the last incarnation that ended, even if the broker is registered again."""

    def controller(self, controller_id: int) -> HasAddresses | None: ...

    def all_services(self) -> Iterable[HasAddresses]:
        """Returns all services: first those that are registered, then those that were."""


# Separates a service's name and its address in texts that clients receive.
_AT = " at "


class ExternalAddresses:
    def __init__(self, known: KnownServices) -> None:
        self._known = known

    def of_broker(self, broker_id: int, address: str) -> str:
        """Returns the external address of the broker; `address` if none is known."""
        return _external(self._known.broker(broker_id), address)

    def of_departed(self, broker_id: int, address: str) -> str:
        """Returns the external address of the broker's last incarnation that ended.

        The current incarnation may have another address. If both have the same `address`, the
        current one is used, because it may be the first with an external address.
        """
        present = self._known.broker(broker_id)
        if present is None or present.address != address:
            return _external(self._known.departed(broker_id), address)
        return _external(present, address)

    def of_controller(self, controller_id: int, address: str) -> str:
        return _external(self._known.controller(controller_id), address)

    def of(self, address: str) -> str:
        """Returns the external address of the service that has `address` inside the network."""
        for known in self._known.all_services():
            if known.address == address:
                return _external(known, address)
        return address

    def in_text(self, service: str) -> str:
        """Replaces the address in "broker-1 at HOST:PORT", or in the address alone."""
        name, at, address = service.rpartition(_AT)
        return f"{name}{at}{self.of(address)}"


def _external(known: HasAddresses | None, address: str) -> str:
    return (known.external_address if known is not None else "") or address
