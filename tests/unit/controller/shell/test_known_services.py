"""Addresses of services that a controller knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.state_changes.event import Cause
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_controller.shell.known_services import ServicesOfReign
from tidelog_controller.state.context import Context
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    ControllerEntry,
    ControllerProcess,
    Departure,
    encode,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

KEYS = Keys("test")
OWN = ControllerEntry(1, "host:1", "own:1")
OTHER = ControllerProcess("host:2", 5, "other:2")
BROKER = BrokerRegistration("host:7501", "", "uuid", RUNNING, 0, 0, "broker:1")
FORMER = Departure(13, Cause.BROKER_CRASHED, 5, "former:7501", "was:1")
GONE = Departure(14, Cause.BROKER_CRASHED, 5, "host:7502", "was:2")


@dataclass
class Reign:
    context: Context
    departed: dict[int, Departure] = field(default_factory=lambda: {1: FORMER, 2: GONE})


def written(key: str, value: bytes) -> Changed:
    return Changed(key, KeyValue(key, value, 9, 9), 9)


def known(*, active: bool) -> ServicesOfReign:
    roster = ControllerRoster(KEYS, StateChangeLog("controller-1", SystemClock()))
    roster.apply([written(KEYS.controller_process(2), encode(OTHER))])
    context = Context(KEYS)
    context.absorb(written(KEYS.broker(1), encode(BROKER)))
    reign = Reign(context) if active else None
    return ServicesOfReign(OWN, roster, lambda: reign)


def test_the_current_incarnation_of_a_broker_is_found_before_its_previous_one() -> None:
    services = known(active=True)
    assert [services.broker(b) for b in (1, 2, 9)] == [BROKER, GONE, None]
    assert services.departed(1) == FORMER


def test_a_controller_knows_itself_before_it_is_registered() -> None:
    services = known(active=True)
    assert [services.controller(c) for c in (1, 2, 3)] == [OWN, OTHER, None]


def test_registered_services_are_listed_before_departed_ones() -> None:
    assert list(known(active=True).all_services()) == [OTHER, OWN, BROKER, FORMER, GONE]


def test_a_standby_knows_only_controllers() -> None:
    services = known(active=False)
    assert [services.broker(1), services.departed(1)] == [None, None]
    assert list(services.all_services()) == [OTHER, OWN]
