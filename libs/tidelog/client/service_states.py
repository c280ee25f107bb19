"""Queries the states of all services of a cluster and returns them as they are; `explaining` draws
conclusions from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidelog.client.clock import Clock
from tidelog.client.connections import GrpcConnections
from tidelog.client.replica_figures import figures_of
from tidelog.client.service_round import MAX_SERVICES, Dial, ExplainConnections, ServiceRound
from tidelog.client.tcp_dial import dial as tcp_dial
from tidelog.errors import TidelogError
from tidelog.inspection.explain import SilentService
from tidelog.inspection.state_reports import NOT_KNOWN, ServiceState, StateRequest
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import inspect_pb2

DEFAULT_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class ReportedStates:
    """States, ordered by role and id. `silent`: services without an answer in time."""

    states: Sequence[ServiceState]
    silent: Sequence[SilentService]


class ServiceStates:
    """Reads the states of services.

    - `addresses`: of some services, which name the others.
    - `connect`: creates the connections of one query, so that none is kept to a service that is
      gone."""

    def __init__(
        self,
        addresses: Iterable[str],
        clock: Clock,
        connect: Callable[[], ExplainConnections] = GrpcConnections,
        dial: Dial = tcp_dial,
    ) -> None:
        self._addresses = tuple(addresses)
        self._clock = clock
        self._connect = connect
        self._dial = dial

    async def ask(
        self, request: StateRequest, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> ReportedStates:
        connections = self._connect()
        found = ServiceRound(self._clock, connections, self._dial, request, timeout_ms, None)
        try:
            await found.ask(dict.fromkeys(self._addresses, ("", NOT_KNOWN)))
        finally:
            await connections.close()
        states = sorted(found.states.values(), key=lambda state: (state.role, state.id))
        return ReportedStates(tuple(states), tuple(found.silent_services()))

    async def replicas(self, addresses: Sequence[str], timeout_ms: int) -> list[ServiceState]:
        """Returns the states of the brokers at these addresses, with the fields of `figures_of`.

        Those that do not answer in time are left out, and no other service is queried."""
        connections = self._connect()
        # Several threads at a time would keep the event loop waiting for its turn.
        decoding = asyncio.Lock()

        async def ask(address: str) -> ServiceState | None:
            try:
                answer = await connections.inspected(address).describe_service(
                    inspect_pb2.DescribeServiceRequest(), timeout_ms
                )
            except (UnreachableError, TidelogError):
                return None
            # In a thread, because thousands of replicas would block the event loop.
            async with decoding:
                return await asyncio.to_thread(figures_of, answer)

        try:
            answers = await asyncio.gather(*map(ask, addresses[:MAX_SERVICES]))
        finally:
            await connections.close()
        return [state for state in answers if state is not None and state.broker is not None]
