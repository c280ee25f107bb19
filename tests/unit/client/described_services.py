"""Services that describe themselves as a `DescribedCluster` says, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tidelog.client.connections import AdminApi, BrokerApi, InspectApi
from tidelog.inspection.explain import Listening
from tidelog.inspection.model import ServiceState
from tidelog.rpc.inspect_codec import to_wire
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
    """`listening`: what a dial of those says that do not answer; REFUSES unless it is told.
    `hanging` answer only after the caller has given up. `answers_after_ms`: by address, on
    `clock`. `given_ms`: how long the caller waits for each. `explains`: by address, what Explain
    answers; others cannot."""

    states: list[ServiceState]
    listening: dict[str, Listening] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    clock: StandingClock = field(default_factory=StandingClock)
    answers_after_ms: dict[str, int] = field(default_factory=dict)
    given_ms: dict[str, int] = field(default_factory=dict)
    metadata: broker_pb2.MetadataResponse = field(default_factory=broker_pb2.MetadataResponse)
    explains: dict[str, inspect_pb2.ExplainResponse] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    open_connections: int = 0

    def connect(self) -> _Connections:
        self.open_connections += 1
        return _Connections(self)

    async def dial(self, address: str) -> Listening:
        return self.listening.get(address, Listening.REFUSES)

    def at(self, address: str) -> ServiceState | None:
        return next((state for state in self.states if state.address == address), None)


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

    async def describe_service(
        self,
        request: inspect_pb2.DescribeServiceRequest,  # noqa: ARG002
        timeout_ms: int,
    ) -> inspect_pb2.DescribeServiceResponse:
        self._services.asked.append(self._address)
        self._services.given_ms[self._address] = timeout_ms
        self._services.clock.now_ms += self._services.answers_after_ms.get(self._address, 0)
        await asyncio.sleep(0)
        if self._address in self._services.hanging:
            await asyncio.sleep(timeout_ms / 1000)
            raise UnreachableError(self._address, "DEADLINE_EXCEEDED: Deadline Exceeded")
        state = self._services.at(self._address)
        if state is None:
            raise UnreachableError(self._address, "UNAVAILABLE: connection refused")
        return to_wire(state, inspect_pb2.DescribeServiceResponse)

    async def explain(
        self,
        request: inspect_pb2.ExplainRequest,  # noqa: ARG002
        timeout_ms: int,  # noqa: ARG002
    ) -> inspect_pb2.ExplainResponse:
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
