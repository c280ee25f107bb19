"""Clients of the external listener get external addresses; other clients do not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest

from tidelog.state_changes.event import Cause
from tidelog.v1 import inspect_pb2 as pb
from tidelog_runtime.external_addresses import ExternalAddresses, HasAddresses
from tidelog_runtime.metadata import schema
from tidelog_runtime.telemetry.external_inspect import replace_addresses

INSIDE_1, OUTSIDE_1 = "broker-1:7500", "127.0.0.1:7501"
INSIDE_2 = "broker-2:7500"
CONTROLLER, OUTSIDE_CONTROLLER = "controller-1:7400", "127.0.0.1:7401"
DEPARTURE = schema.Departure(13, Cause.BROKER_CRASHED, 5, INSIDE_1)


def broker(address: str, external_address: str = "") -> schema.BrokerRegistration:
    return schema.BrokerRegistration(address, "a", "uuid", schema.RUNNING, 0, 0, external_address)


class Known:
    """Addresses set by the test."""

    def __init__(
        self,
        brokers: Mapping[int, HasAddresses],
        controllers: Mapping[int, HasAddresses] | None = None,
        departed: Mapping[int, HasAddresses] | None = None,
    ) -> None:
        self.broker = brokers.get
        self.controller = (controllers or {}).get
        self.departed = (departed or {}).get
        self._all = ((controllers or {}), brokers, (departed or {}))

    def all_services(self) -> Iterable[HasAddresses]:
        for services in self._all:
            yield from services.values()


@pytest.fixture
def addresses() -> ExternalAddresses:
    brokers = {1: broker(INSIDE_1, OUTSIDE_1), 2: broker(INSIDE_2)}
    controllers = {1: schema.ControllerProcess(CONTROLLER, 5, OUTSIDE_CONTROLLER)}
    departed = {1: DEPARTURE._replace(external_address=OUTSIDE_1)}
    return ExternalAddresses(Known(brokers, controllers, departed))


def test_a_broker_is_named_by_its_external_address(addresses: ExternalAddresses) -> None:
    assert addresses.of_broker(1, INSIDE_1) == OUTSIDE_1


def test_a_broker_without_an_external_address_is_named_by_its_internal_one(
    addresses: ExternalAddresses,
) -> None:
    assert addresses.of_broker(2, INSIDE_2) == INSIDE_2
    assert addresses.of_broker(9, "gone:7500") == "gone:7500"
    assert addresses.of("") == ""


def test_two_services_at_one_address_are_distinguished_by_their_ids() -> None:
    """For example when the address of one was given to another by mistake."""
    brokers = {1: broker(INSIDE_1, OUTSIDE_1), 2: broker(INSIDE_1, "127.0.0.1:7502")}
    known = ExternalAddresses(Known(brokers))
    assert known.of_broker(2, INSIDE_1) == "127.0.0.1:7502"


def test_a_service_named_in_text_keeps_its_name(addresses: ExternalAddresses) -> None:
    assert addresses.in_text(f"broker-1 at {INSIDE_1}") == f"broker-1 at {OUTSIDE_1}"
    assert addresses.in_text(CONTROLLER) == OUTSIDE_CONTROLLER


def test_later_registrations_count() -> None:
    brokers: dict[int, schema.BrokerRegistration] = {}
    known = ExternalAddresses(Known(brokers))
    brokers[1] = broker(INSIDE_1, OUTSIDE_1)
    assert known.of_broker(1, INSIDE_1) == OUTSIDE_1


def test_an_ended_incarnation_is_named_by_its_own_external_address() -> None:
    """The address of the broker's present incarnation, which may be on another machine, is not
    used."""
    brokers = {1: broker("moved-1:7500", "127.0.0.1:7509")}
    previous = DEPARTURE._replace(external_address=OUTSIDE_1)
    state = pb.DescribeServiceResponse(
        role="controller",
        controller=pb.ControllerState(
            registered=[pb.RegisteredBroker(broker_id=1, address="moved-1:7500")],
            departures=[pb.Departure(broker_id=1, address=INSIDE_1)],
        ),
    )
    known = ExternalAddresses(Known(brokers, departed={1: previous}))
    replace_addresses(state, known)
    assert state.controller.departures[0].address == OUTSIDE_1
    assert state.controller.registered[0].address == "127.0.0.1:7509"
    assert known.in_text(f"broker-1 at {INSIDE_1}") == f"broker-1 at {OUTSIDE_1}"


@pytest.mark.parametrize(
    ("present", "expected"), [(INSIDE_1, "127.0.0.1:7509"), ("moved-1:7500", INSIDE_1)]
)
def test_an_incarnation_without_an_external_address_has_that_of_the_next_at_the_same_place(
    present: str, expected: str
) -> None:
    """Otherwise a request to all services would reach one broker at two addresses."""
    brokers = {1: broker(present, "127.0.0.1:7509")}
    known = ExternalAddresses(Known(brokers, departed={1: DEPARTURE}))
    assert known.of_departed(1, INSIDE_1) == expected


def test_a_brokers_description_names_no_internal_address(addresses: ExternalAddresses) -> None:
    state = pb.DescribeServiceResponse(
        role="broker",
        id=1,
        address=INSIDE_1,
        broker=pb.BrokerState(
            registered=[pb.RegisteredBroker(broker_id=1, address=INSIDE_1)],
            controllers=[pb.RegisteredController(controller_id=1, address=CONTROLLER)],
            departures=[pb.Departure(broker_id=1, address=INSIDE_1)],
            controller_address=CONTROLLER,
        ),
    )
    replace_addresses(state, addresses)
    text = str(state)
    assert INSIDE_1 not in text
    assert CONTROLLER not in text
    assert text.count(OUTSIDE_1) == 3
    assert text.count(OUTSIDE_CONTROLLER) == 2


def test_a_controllers_description_names_no_internal_address(addresses: ExternalAddresses) -> None:
    state = pb.DescribeServiceResponse(
        role="controller",
        id=1,
        address=CONTROLLER,
        controller=pb.ControllerState(
            active_address=CONTROLLER,
            registered=[pb.RegisteredBroker(broker_id=1, address=INSIDE_1)],
            controllers=[pb.RegisteredController(controller_id=1, address=CONTROLLER)],
        ),
    )
    replace_addresses(state, addresses)
    assert INSIDE_1 not in str(state)
    assert CONTROLLER not in str(state)
    assert not state.HasField("broker")


WITHOUT = [
    schema.encode(broker(INSIDE_1)),
    schema.encode(schema.ControllerEntry(1, CONTROLLER)),
    schema.encode(schema.ControllerProcess(CONTROLLER, 5)),
    schema.encode_departure(DEPARTURE),
]


@pytest.mark.parametrize("value", WITHOUT)
def test_without_external_addresses_keys_are_unchanged(value: bytes) -> None:
    assert "external_address" not in json.loads(value)


def test_external_addresses_round_trip_through_the_store() -> None:
    registered = broker(INSIDE_1, OUTSIDE_1)
    assert schema.decode_broker(schema.encode(registered)) == registered
    entry = schema.ControllerEntry(1, CONTROLLER, OUTSIDE_CONTROLLER)
    assert schema.decode_controller(schema.encode(entry)) == entry
    process = schema.ControllerProcess(CONTROLLER, 5, OUTSIDE_CONTROLLER)
    assert schema.decode_controller_process(schema.encode(process)) == process
    departed = DEPARTURE._replace(external_address=OUTSIDE_1)
    assert schema.decode_departure(schema.encode_departure(departed)) == departed
    assert schema.decode_departure(schema.encode_departure(DEPARTURE)) == DEPARTURE
