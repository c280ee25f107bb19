"""Discovery of the services that are queried for events."""

from __future__ import annotations

from dataclasses import replace

from tidelog.client.event_streams import EventStreams
from tidelog.inspection.state_reports import ControllerState, RegisteredController
from tidelog.v1 import broker_pb2
from unit.client.described_services import DescribedServices
from unit.inspection.explain.described import DescribedCluster, address

ACTIVE, STANDBY, ELSEWHERE = "127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:9999"
CONTROLLERS = (RegisteredController(1, ACTIVE), RegisteredController(2, STANDBY))


def services() -> DescribedServices:
    """Three brokers, an active controller and a standby."""
    *brokers, active = DescribedCluster().observed().states
    assert active.controller is not None
    waiting = ControllerState(active=False, controller_epoch=-1, controllers=CONTROLLERS)
    found = DescribedServices(
        [
            *brokers,
            replace(active, controller=replace(active.controller, controllers=CONTROLLERS)),
            replace(active, id=2, address=STANDBY, controller=waiting),
        ]
    )
    found.metadata = broker_pb2.MetadataResponse(
        brokers=[broker_pb2.BrokerEndpoint(broker_id=b, address=address(b)) for b in (1, 2, 3)],
        controllers=[
            broker_pb2.ControllerProcess(controller_id=c.controller_id, address=c.address)
            for c in CONTROLLERS
        ],
    )
    return found


async def asked(found: DescribedServices, *bootstrap: str) -> list[str]:
    async with EventStreams(bootstrap, connections=found.connect()) as streams:
        return sorted(await streams.addresses())


EVERYBODY = sorted([*map(address, (1, 2, 3)), ACTIVE, STANDBY])


async def test_any_broker_names_all_controllers_active_or_not() -> None:
    found = services()
    assert await asked(found, address(2)) == EVERYBODY
    assert found.called == []


async def test_a_standby_controller_leads_to_all_other_services() -> None:
    assert await asked(services(), STANDBY) == EVERYBODY


async def test_without_brokers_controllers_find_each_other() -> None:
    found = services()
    found.states = [state for state in found.states if state.broker is None]
    assert await asked(found, ACTIVE) == EVERYBODY


async def test_unresponsive_services_are_queried_too() -> None:
    found = services()
    found.states.clear()
    assert await asked(found, ELSEWHERE) == [ELSEWHERE]
