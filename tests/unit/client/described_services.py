"""Services that describe themselves as a `DescribedCluster` defines, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from tidelog.client.admin_api import AdminApi
from tidelog.client.connections import BrokerApi, InspectApi
from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import PartitionKeyState, RegisteredBroker, ServiceState
from tidelog.rpc.message_codec import to_wire
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import broker_pb2, inspect_pb2


@dataclass
class StandingClock:
    now_ms: int = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@dataclass
class DescribedServices:
    """Services and how they answer. Dictionaries have addresses as keys.

    - `listening`: the result of dialling a service that does not answer; the default is REFUSES.
    - `hanging`: services that answer nothing.
    - `takes_ms`: how long each answer takes, also that of a health check. The caller gives up
      earlier, or gets the answer.
    - `answers_after_ms`: the same on `clock`.
    - `describes_after_ms`, `names_after_ms`: how long the event loop waits for the full
      description, and for the list of services alone. `called_for_names` has the addresses that got
      the latter request.
    - `given_ms`: the timeout that the caller gave each service.
    - `well`: partitions that the controller returns only for a query by ISR member.
    - `registered_then`: the registered brokers at that query, if they differ.
    - `explains`: the answers to Explain; other services cannot answer it. `explaining` has the
      addresses that got that request.
    """

    states: list[ServiceState]
    listening: dict[str, Listening] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    clock: StandingClock = field(default_factory=StandingClock)
    takes_ms: dict[str, int] = field(default_factory=dict)
    answers_after_ms: dict[str, int] = field(default_factory=dict)
    describes_after_ms: dict[str, int] = field(default_factory=dict)
    names_after_ms: dict[str, int] = field(default_factory=dict)
    given_ms: dict[str, int] = field(default_factory=dict)
    metadata: broker_pb2.MetadataResponse = field(default_factory=broker_pb2.MetadataResponse)
    well: list[PartitionKeyState] = field(default_factory=list)
    registered_then: list[RegisteredBroker] | None = None
    explains: dict[str, inspect_pb2.ExplainResponse] = field(default_factory=dict)
    explaining: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    called_for_names: list[str] = field(default_factory=list)
    open_connections: int = 0

    def connect(self) -> _Connections:
        self.open_connections += 1
        return _Connections(self)

    async def dial(self, address: str) -> Listening:
        return self.listening.get(address, Listening.REFUSES)

    def at(self, address: str) -> ServiceState | None:
        return next((state for state in self.states if state.address == address), None)

    def answer_of(self, address: str, timeout_ms: int) -> ServiceState:
        """Raises `UnreachableError`."""
        if address in self.hanging or self.takes_ms.get(address, 0) > timeout_ms:
            raise UnreachableError(address, "DEADLINE_EXCEEDED: Deadline Exceeded")
        state = self.at(address)
        if state is None:
            raise UnreachableError(address, "UNAVAILABLE: connection refused")
        return state


def without_parts(state: ServiceState) -> ServiceState:
    """Reduces a service's description to the list of services."""
    if state.broker is not None:
        return replace(state, broker=replace(state.broker, replicas=()))
    assert state.controller is not None
    return replace(state, controller=replace(state.controller, partitions=()))


class _Connections:
    def __init__(self, services: DescribedServices) -> None:
        self._services = services

    def inspected(self, address: str) -> InspectApi:
        return _Inspected(self._services, address)

    def broker(self, address: str) -> BrokerApi:
        return _Broker(self._services, address)  # type: ignore[return-value]  # metadata alone

    def controller(self, address: str) -> AdminApi:
        raise NotImplementedError(address)

    async def close(self) -> None:
        self._services.open_connections -= 1


class _Inspected:
    def __init__(self, services: DescribedServices, address: str) -> None:
        self._services = services
        self._address = address

    def watch_events(
        self, request: inspect_pb2.WatchEventsRequest, timeout_ms: int | None
    ) -> AsyncIterator[inspect_pb2.WatchEventsResponse]:
        raise NotImplementedError

    async def probe(self, timeout_ms: int, *, patient: bool = False) -> None:  # noqa: ARG002
        await asyncio.sleep(0)
        self._services.answer_of(self._address, timeout_ms)

    async def describe_service(
        self, request: inspect_pb2.DescribeServiceRequest, timeout_ms: int
    ) -> inspect_pb2.DescribeServiceResponse:
        if request.services_only:
            return await self._names(timeout_ms)
        self._services.called.append(self._address)
        self._services.given_ms[self._address] = timeout_ms
        await self._takes(self._services.describes_after_ms, timeout_ms)
        self._services.clock.now_ms += self._services.answers_after_ms.get(self._address, 0)
        await asyncio.sleep(0)
        state = self._services.answer_of(self._address, timeout_ms)
        if request.in_isr and state.controller is not None:
            keys = tuple(
                key
                for key in self._services.well
                if any(member.broker_id in request.in_isr for member in key.isr)
            )
            registered = self._services.registered_then or state.controller.registered
            controller = replace(state.controller, partitions=keys, registered=registered)
            state = replace(state, controller=controller)
        return to_wire(state, inspect_pb2.DescribeServiceResponse)

    async def _names(self, timeout_ms: int) -> inspect_pb2.DescribeServiceResponse:
        self._services.called_for_names.append(self._address)
        await self._takes(self._services.names_after_ms, timeout_ms)
        state = without_parts(self._services.answer_of(self._address, timeout_ms))
        return to_wire(state, inspect_pb2.DescribeServiceResponse)

    async def _takes(self, after_ms: dict[str, int], timeout_ms: int) -> None:
        takes_ms = after_ms.get(self._address, 0)
        await asyncio.sleep(min(takes_ms, timeout_ms) / 1000)
        if takes_ms > timeout_ms:
            raise UnreachableError(self._address, "DEADLINE_EXCEEDED: Deadline Exceeded")

    async def explain(
        self,
        request: inspect_pb2.ExplainRequest,  # noqa: ARG002
        timeout_ms: int,  # noqa: ARG002
    ) -> inspect_pb2.ExplainResponse:
        self._services.explaining.append(self._address)
        await asyncio.sleep(0)
        answer = self._services.explains.get(self._address)
        if answer is None:
            raise UnreachableError(self._address, "UNAVAILABLE: connection refused")
        return answer


class _Broker:
    def __init__(self, services: DescribedServices, address: str) -> None:
        self._services = services
        self._address = address

    async def metadata(
        self,
        request: broker_pb2.MetadataRequest,  # noqa: ARG002
        timeout_ms: int,  # noqa: ARG002
    ) -> broker_pb2.MetadataResponse:
        state = self._services.at(self._address)
        if state is None or state.broker is None:
            raise UnreachableError(self._address, "UNAVAILABLE: connection refused")
        return self._services.metadata
