"""Addresses of the cluster's services, as far as a broker knows them."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_runtime.external_addresses import HasAddresses


class CachedServices:
    """Finds services in the metadata cache.

    `own` has the addresses of this broker, `broker_id`, for the time before it is registered.
    """

    def __init__(self, cache: MetadataCache, broker_id: int, own: HasAddresses) -> None:
        self._cache = cache
        self._broker_id = broker_id
        self._own = own

    def broker(self, broker_id: int) -> HasAddresses | None:
        live = self._cache.brokers.get(broker_id)
        if live is not None:
            return live.registration
        return self._own if broker_id == self._broker_id else self.departed(broker_id)

    def departed(self, broker_id: int) -> HasAddresses | None:
        return self._cache.departures.get(broker_id)

    def controller(self, controller_id: int) -> HasAddresses | None:
        active = self._cache.controller
        is_active = active is not None and active.controller_id == controller_id
        return self._cache.controllers.get(controller_id, active if is_active else None)

    def all_services(self) -> Iterator[HasAddresses]:
        yield from self._cache.controllers.values()
        if self._cache.controller is not None:
            yield self._cache.controller
        yield self._own
        for live in self._cache.brokers.values():
            yield live.registration
        yield from self._cache.departures.values()
