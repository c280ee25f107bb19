"""Where clients outside of the brokers' network reach brokers and controllers (KIP-103).

A service that has `external_listen` registers two addresses. Whoever comes in there is told the
external one of everybody, and whoever has none is named by the one that he has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Reachable(Protocol):
    """As a service is registered, or was last. `external_address` empty: it has none."""

    @property
    def address(self) -> str: ...

    @property
    def external_address(self) -> str: ...


class KnownServices(Protocol):
    """As they are known now; None: not at all."""

    def broker(self, broker_id: int) -> Reachable | None:
        """In its present life, or else in its last."""

    def departed(self, broker_id: int) -> Reachable | None:
        """In its last life that ended, also where it is back."""

    def controller(self, controller_id: int) -> Reachable | None: ...

    def everybody(self) -> Iterable[Reachable]:
        """Whoever is there before whoever was."""


# Between a service's name and its address, in texts for people that clients read, too.
_AT = " at "


class ExternalAddresses:
    def __init__(self, known: KnownServices) -> None:
        self._known = known

    def of_broker(self, broker_id: int, address: str) -> str:
        """`address`: the one to tell where nothing else is known."""
        return _external(self._known.broker(broker_id), address)

    def of_departed(self, broker_id: int, address: str) -> str:
        """Of its last life that ended. Its present one may be elsewhere, or, where both have one
        address, be the first that has an external one."""
        present = self._known.broker(broker_id)
        if present is None or present.address != address:
            return _external(self._known.departed(broker_id), address)
        return _external(present, address)

    def of_controller(self, controller_id: int, address: str) -> str:
        return _external(self._known.controller(controller_id), address)

    def of(self, address: str) -> str:
        """Of whoever is reached there by those inside."""
        for known in self._known.everybody():
            if known.address == address:
                return _external(known, address)
        return address

    def in_text(self, service: str) -> str:
        """Of "broker-1 at HOST:PORT", or of the address alone."""
        name, at, address = service.rpartition(_AT)
        return f"{name}{at}{self.of(address)}"


def _external(known: Reachable | None, address: str) -> str:
    return (known.external_address if known is not None else "") or address
