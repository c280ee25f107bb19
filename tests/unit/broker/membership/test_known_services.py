"""The addresses of services, as far as a broker knows them."""

from __future__ import annotations

from tidelog.state_changes.event import Cause
from tidelog_broker.membership.known_services import CachedServices
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_runtime.metadata.schema import (
    ControllerEntry,
    ControllerProcess,
    Departure,
    encode,
    encode_departure,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from unit.broker.broker_parts import KEYS, broker_change, registration

OWN = registration(1, external_address="own:1")
ACTIVE = ControllerEntry(4, "10.0.0.9:7400", "active:4")


def departure(broker_id: int) -> Departure:
    return Departure(13, Cause.BROKER_CRASHED, 5, f"was-{broker_id}:7500", f"was:{broker_id}")


def written(key: str, value: bytes) -> Changed:
    return Changed(key, KeyValue(key, value, 9, 9), 9)


def departed(broker_id: int) -> Changed:
    return written(KEYS.departure(broker_id), encode_departure(departure(broker_id)))


def known(*changes: Changed) -> CachedServices:
    cache = MetadataCache(KEYS)
    cache.apply(changes)
    return CachedServices(cache, 1, OWN)


def test_a_broker_is_known_by_its_registration_before_its_departure() -> None:
    services = known(departed(2), departed(3), broker_change(2))
    assert services.broker(2) == registration(2)
    assert services.broker(3) == departure(3)
    assert services.broker(9) is None


def test_the_last_departure_is_known_though_the_broker_is_back() -> None:
    assert known(departed(2), broker_change(2)).departed(2) == departure(2)


def test_a_broker_knows_itself_before_it_is_registered() -> None:
    assert known(departed(1)).broker(1) == OWN
    assert known(broker_change(1)).broker(1) == registration(1)


def test_the_active_controller_is_known_before_its_process_is_registered() -> None:
    active = written(KEYS.controller, encode(ACTIVE))
    assert known(active).controller(4) == ACTIVE
    assert known(active).controller(5) is None
    process = ControllerProcess("10.0.0.9:7400", 80, "process:4")
    registered = written(KEYS.controller_process(4), encode(process))
    assert known(active, registered).controller(4) == process


def test_registered_services_are_listed_before_departed_ones() -> None:
    services = known(departed(2), broker_change(3), written(KEYS.controller, encode(ACTIVE)))
    assert list(services.all_services()) == [ACTIVE, OWN, registration(3), departure(2)]
