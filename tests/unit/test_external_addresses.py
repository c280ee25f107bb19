"""Whoever comes in by the external listener is told external addresses, and by nothing else."""

from __future__ import annotations

import json

import pytest

from tidelog.state_changes.event import Cause
from tidelog.v1 import inspect_pb2 as pb
from tidelog_runtime.external_addresses import ExternalAddresses
from tidelog_runtime.metadata import schema
from tidelog_runtime.telemetry.external_inspect import tell_externally

INSIDE_1, OUTSIDE_1 = "broker-1:7500", "127.0.0.1:7501"
INSIDE_2 = "broker-2:7500"
CONTROLLER, OUTSIDE_CONTROLLER = "controller-1:7400", "127.0.0.1:7401"


def broker(address: str, external_address: str = "") -> schema.BrokerRegistration:
    return schema.BrokerRegistration(address, "a", "uuid", schema.RUNNING, 0, 0, external_address)


@pytest.fixture
def addresses() -> ExternalAddresses:
    brokers = {1: broker(INSIDE_1, OUTSIDE_1), 2: broker(INSIDE_2)}
    controllers = {1: schema.ControllerProcess(CONTROLLER, 5, OUTSIDE_CONTROLLER)}
    return ExternalAddresses(lambda: brokers, lambda: controllers)


def test_a_broker_is_named_by_its_external_address(addresses: ExternalAddresses) -> None:
    assert addresses.of_broker(1, INSIDE_1) == OUTSIDE_1


def test_who_has_no_external_address_is_named_by_the_one_there_is(
    addresses: ExternalAddresses,
) -> None:
    assert addresses.of_broker(2, INSIDE_2) == INSIDE_2
    assert addresses.of_broker(9, "gone:7500") == "gone:7500"
    assert addresses.of("") == ""


def test_two_services_at_one_address_are_told_apart_by_their_ids() -> None:
    """As where the address of one was given to another by mistake."""
    brokers = {1: broker(INSIDE_1, OUTSIDE_1), 2: broker(INSIDE_1, "127.0.0.1:7502")}
    known = ExternalAddresses(lambda: brokers, dict)
    assert known.of_broker(2, INSIDE_1) == "127.0.0.1:7502"


def test_a_service_in_a_text_keeps_its_name(addresses: ExternalAddresses) -> None:
    assert addresses.in_text(f"broker-1 at {INSIDE_1}") == f"broker-1 at {OUTSIDE_1}"
    assert addresses.in_text(CONTROLLER) == OUTSIDE_CONTROLLER


def test_what_is_registered_later_counts() -> None:
    brokers: dict[int, schema.BrokerRegistration] = {}
    known = ExternalAddresses(lambda: brokers, dict)
    brokers[1] = broker(INSIDE_1, OUTSIDE_1)
    assert known.of_broker(1, INSIDE_1) == OUTSIDE_1


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
    tell_externally(state, addresses)
    said = str(state)
    assert INSIDE_1 not in said
    assert CONTROLLER not in said
    assert said.count(OUTSIDE_1) == 3
    assert said.count(OUTSIDE_CONTROLLER) == 2


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
    tell_externally(state, addresses)
    assert INSIDE_1 not in str(state)
    assert CONTROLLER not in str(state)
    assert not state.HasField("broker")


DEPARTURE = schema.Departure(13, Cause.BROKER_CRASHED, 5, INSIDE_1)
WITHOUT = [
    schema.encode(broker(INSIDE_1)),
    schema.encode(schema.ControllerEntry(1, CONTROLLER)),
    schema.encode(schema.ControllerProcess(CONTROLLER, 5)),
    schema.encode_departure(DEPARTURE),
]


@pytest.mark.parametrize("value", WITHOUT)
def test_without_external_addresses_keys_are_as_they_always_were(value: bytes) -> None:
    assert "external_address" not in json.loads(value)


def test_external_addresses_come_through_the_store_unchanged() -> None:
    registered = broker(INSIDE_1, OUTSIDE_1)
    assert schema.decode_broker(schema.encode(registered)) == registered
    entry = schema.ControllerEntry(1, CONTROLLER, OUTSIDE_CONTROLLER)
    assert schema.decode_controller(schema.encode(entry)) == entry
    process = schema.ControllerProcess(CONTROLLER, 5, OUTSIDE_CONTROLLER)
    assert schema.decode_controller_process(schema.encode(process)) == process
    departed = DEPARTURE._replace(external_address=OUTSIDE_1)
    assert schema.decode_departure(schema.encode_departure(departed)) == departed
    assert schema.decode_departure(schema.encode_departure(DEPARTURE)) == DEPARTURE
