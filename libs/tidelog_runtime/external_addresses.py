"""Where clients outside of the brokers' network reach brokers and controllers (KIP-103).

A service that has `external_listen` registers two addresses. Whoever comes in there is told the
external one of everybody, and whoever has none is named by the one that he has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class Reachable(Protocol):
    """As a service is registered, or was last. `external_address` empty: it has none."""

    @property
    def address(self) -> str: ...

    @property
    def external_address(self) -> str: ...


KnownServices = Callable[[], Mapping[int, Reachable]]
# Between a service's name and its address, in texts for people that clients read, too.
_AT = " at "


class ExternalAddresses:
    """`brokers`, `controllers`: those that are known now, by id."""

    def __init__(self, brokers: KnownServices, controllers: KnownServices) -> None:
        self._brokers = brokers
        self._controllers = controllers

    def of_broker(self, broker_id: int, address: str) -> str:
        """`address`: the one to tell where nothing else is known."""
        return _external(self._brokers().get(broker_id), address)

    def of_controller(self, controller_id: int, address: str) -> str:
        return _external(self._controllers().get(controller_id), address)

    def of(self, address: str) -> str:
        """Of whoever is reached there by those inside."""
        for known in (*self._controllers().values(), *self._brokers().values()):
            if known.address == address:
                return _external(known, address)
        return address

    def in_text(self, service: str) -> str:
        """Of "broker-1 at HOST:PORT", or of the address alone."""
        name, at, address = service.rpartition(_AT)
        return f"{name}{at}{self.of(address)}"


def _external(known: Reachable | None, address: str) -> str:
    return (known.external_address if known is not None else "") or address
