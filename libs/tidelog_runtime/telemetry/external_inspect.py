"""InspectService for clients of `external_listen`, with addresses that they can reach.

Texts for people (findings and their evidence) name services as the logs do.
"""

from __future__ import annotations

from typing import Any

import grpc.aio

from tidelog.v1 import inspect_pb2 as pb
from tidelog_runtime.external_addresses import ExternalAddresses
from tidelog_runtime.telemetry.inspect_service import Inspected, InspectServicer
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

_Context = grpc.aio.ServicerContext[Any, Any]


class ExternalInspectServicer(InspectServicer):
    def __init__(
        self, inspected: Inspected, state_changes: StateChangeLog, addresses: ExternalAddresses
    ) -> None:
        super().__init__(inspected, state_changes)
        self._addresses = addresses

    async def DescribeService(  # noqa: N802 - the generated name
        self, request: pb.DescribeServiceRequest, context: _Context
    ) -> pb.DescribeServiceResponse:
        response = await super().DescribeService(request, context)
        replace_addresses(response, self._addresses)
        return response

    async def Explain(  # noqa: N802 - the generated name
        self, request: pb.ExplainRequest, context: _Context
    ) -> pb.ExplainResponse:
        response = await super().Explain(request, context)
        for services in (response.asked, response.silent):
            # Clients query the services that did not answer themselves.
            services[:] = [self._addresses.in_text(service) for service in services]
        return response


def replace_addresses(state: pb.DescribeServiceResponse, addresses: ExternalAddresses) -> None:
    """Replaces every address in `state` with the external one, in place."""
    if state.HasField("broker"):
        state.address = addresses.of_broker(state.id, state.address)
        _replace_addresses_of_known(state.broker, addresses)
        state.broker.controller_address = addresses.of(state.broker.controller_address)
    elif state.HasField("controller"):
        state.address = addresses.of_controller(state.id, state.address)
        _replace_addresses_of_known(state.controller, addresses)
        state.controller.active_address = addresses.of(state.controller.active_address)
        for waiting in state.controller.waiting_controllers:
            waiting.address = addresses.in_text(waiting.address)
            waiting.registered_address = addresses.in_text(waiting.registered_address)


def _replace_addresses_of_known(
    known: pb.BrokerState | pb.ControllerState, addresses: ExternalAddresses
) -> None:
    for missing in known.missing_controllers:
        missing.address = addresses.in_text(missing.address)
    for broker in known.registered:
        broker.address = addresses.of_broker(broker.broker_id, broker.address)
    for departure in known.departures:
        departure.address = addresses.of_departed(departure.broker_id, departure.address)
    for rejected in known.rejected_starts:
        rejected.address = addresses.in_text(rejected.address)
    for controller in known.controllers:
        controller.address = addresses.of_controller(controller.controller_id, controller.address)
