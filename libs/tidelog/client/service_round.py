"""One round of queries to all services of a cluster. Services that answer name other services,
which are queried at once, with the same time limit.

A service that has not described itself within SOON_MS gets a second, cheap query for the services
that it knows. So a service that needs long to describe thousands of replicas still names the
controllers, and reports how the metadata store answers it.

A service counts as stalled only if it accepts connections and does not answer a health check. A
health check costs nothing, so a live service answers it however busy it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from tidelog.client.clock import Clock
from tidelog.client.connections import Connections, InspectConnections
from tidelog.errors import TidelogError
from tidelog.inspection.explain import Listening, SilentService
from tidelog.inspection.explain.formatting import span
from tidelog.inspection.explain.observation import BROKER, CONTROLLER, ReadClock
from tidelog.inspection.state_reports import LEAST_ANSWER_MS, NOT_KNOWN, ServiceState, StateRequest
from tidelog.rpc.message_codec import from_wire, to_wire
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import inspect_pb2

# Maximum number of services of one cluster; further ones are not queried.
MAX_SERVICES = 1_000
# A service that is not busy has described itself by then.
SOON_MS = 250
# A service that is named late has the time limit of one query from then on. The round ends after so
# many times that limit, except for LEAST_ANSWER_MS.
TIMES_IN_ALL = 2
# Additional time of a health check, and of the cheap query.
PROBE_GRACE_MS = 1_000

# Role and id of the service that is expected at an address.
Identity = tuple[str, int]
_NOBODY: Identity = ("", NOT_KNOWN)

Dial = Callable[[str], Awaitable[Listening]]
Describe = Callable[[StateRequest], Awaitable[ServiceState]]


class ExplainConnections(Connections, InspectConnections, Protocol):
    """Connections for requests of clients and for inspection of services."""


class ServiceRound:
    """The queried services, their addresses, and their answers. `own`: describes the service that
    queries the others, without a call."""

    def __init__(
        self,
        clock: Clock,
        connections: ExplainConnections,
        dial: Dial,
        request: StateRequest,
        timeout_ms: int,
        own: Describe | None,
    ) -> None:
        self.connections = connections
        self.request = request
        self.known_as: dict[str, Identity] = {}
        self.states: dict[Identity, ServiceState] = {}
        # The address at which each service answered, which may not be the one it advertises.
        self.answered_at: dict[Identity, str] = {}
        # Clocks of services, from their last answers.
        self.clocks: dict[Identity, ReadClock] = {}
        self._clock = clock
        self._dial = dial
        self._timeout_ms = timeout_ms
        self._own = own
        self._own_address: str | None = None
        self._asked: dict[str, None] = {}
        self._silent: dict[str, SilentService] = {}
        # States without replicas and partitions, by the address that was queried.
        self._short_states: dict[str, ServiceState] = {}
        self._give_up_ms = 0

    # Queries.

    async def ask(self, given: Mapping[str, Identity]) -> None:
        """Queries all services. `given`: the addresses to begin with."""
        self._give_up_ms = self._clock.monotonic_ms() + TIMES_IN_ALL * self._timeout_ms
        self.known_as.update(given)
        async with asyncio.TaskGroup() as group:
            if self._own is not None:
                await self._find_own_address(group)
            self._ask_named(group)
        # All queries after the round have the time limit of one query together.
        self._give_up_ms = self._clock.monotonic_ms() + self._timeout_ms

    def left_ms(self) -> int:
        """Returns the remaining time, at least LEAST_ANSWER_MS."""
        return max(LEAST_ANSWER_MS, self._give_up_ms - self._clock.monotonic_ms())

    async def describe(self, request: StateRequest, address: str, timeout_ms: int) -> ServiceState:
        """Returns a service's state. Raises `UnreachableError` and `TidelogError`."""
        if self._own is not None and address == self._own_address:
            return await self._describe_own(request, timeout_ms)
        asked_ms = self._clock.wall_ms()
        answer = await self.connections.inspected(address).describe_service(
            to_wire(request, inspect_pb2.DescribeServiceRequest), timeout_ms
        )
        answered_ms = self._clock.wall_ms()
        state = await asyncio.to_thread(from_wire, answer, ServiceState)
        ahead = (state.now_ms - answered_ms, state.now_ms - asked_ms)
        self.clocks[state.role, state.id] = ReadClock(state.role, state.id, *ahead)
        return state

    async def _describe_own(self, request: StateRequest, timeout_ms: int) -> ServiceState:
        assert self._own is not None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                state = await self._own(request)
        except TimeoutError as error:
            raise UnreachableError("itself", "DEADLINE_EXCEEDED: it is busy") from error
        self.clocks[state.role, state.id] = ReadClock(state.role, state.id, 0, 0, is_own=True)
        return state

    async def _find_own_address(self, group: asyncio.TaskGroup) -> None:
        """Finds the own address before another service names it. If this process is too busy even
        for that, it is queried by a call, like the others."""
        request = replace(self.request, services_only=True)
        try:
            own = await self._describe_own(request, self._timeout_ms)
        except UnreachableError:
            return
        self._own_address = own.address
        self._take_short_state(own, own.address, group)

    def _ask_named(self, group: asyncio.TaskGroup) -> None:
        for address in self._unasked():
            self._asked[address] = None
            timeout_ms = min(self._timeout_ms, self.left_ms())
            group.create_task(self._ask(address, timeout_ms, group))

    def _unasked(self) -> list[str]:
        """Returns addresses named meanwhile; those of registered services precede departed ones."""
        free = MAX_SERVICES - len(self._asked)
        return [address for address in self.known_as if address not in self._asked][:free]

    async def _ask(self, address: str, timeout_ms: int, group: asyncio.TaskGroup) -> None:
        # Concurrently, so that a service whose answers are late is known to be alive.
        probe = asyncio.create_task(self._is_alive(address, timeout_ms + PROBE_GRACE_MS))
        question = asyncio.create_task(self.describe(self.request, address, timeout_ms))
        tasks: list[asyncio.Task[object]] = [probe, question]
        try:
            await asyncio.wait((question,), timeout=SOON_MS / 1000)
            if not question.done():
                left_ms = timeout_ms + PROBE_GRACE_MS - SOON_MS
                tasks.append(
                    asyncio.create_task(self._request_short_state(address, left_ms, group))
                )
            self._take(await question, address, group)
        except UnreachableError as error:
            listening = await self._listening(address, probe, tasks[2:])
            said = "gave no answer"
            if error.reason.startswith("DEADLINE_EXCEEDED"):
                said += f" within {span(timeout_ms)}"
            self._silent[address] = SilentService(address, listening, said)
        except TidelogError as error:
            said = f'answered "{error.message}"'
            self._silent[address] = SilentService(address, Listening.ERRS, said)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _is_alive(self, address: str, timeout_ms: int) -> bool:
        if address == self._own_address:
            return True
        return await answers_probe(self.connections, address, timeout_ms, patient=True)

    async def _request_short_state(
        self, address: str, timeout_ms: int, group: asyncio.TaskGroup
    ) -> None:
        request = replace(self.request, services_only=True)
        try:
            state = await self.describe(request, address, timeout_ms)
        except (UnreachableError, TidelogError):
            return
        self._take_short_state(state, address, group)

    async def _listening(
        self, address: str, probe: asyncio.Task[bool], short_state: Iterable[asyncio.Task[object]]
    ) -> Listening:
        if address in self._short_states:
            return Listening.BUSY
        listening = await self._dial(address)
        if listening not in (Listening.ACCEPTS, Listening.SILENT) or not await probe:
            return listening
        # It is alive, so it may still report its identity and the services that it knows.
        await asyncio.gather(*short_state)
        return Listening.BUSY

    # Answers.

    def _take(self, state: ServiceState, address: str, group: asyncio.TaskGroup) -> None:
        identity = (state.role, state.id)
        self.states.setdefault(identity, state)
        self.answered_at.setdefault(identity, address)
        self._learn(state, group)

    def _take_short_state(
        self, state: ServiceState, address: str, group: asyncio.TaskGroup
    ) -> None:
        self._short_states[address] = state
        self.known_as[address] = (state.role, state.id)
        self._learn(state, group)

    def _learn(self, state: ServiceState, group: asyncio.TaskGroup) -> None:
        for address, role, service_id in _named_by(state):
            if address and self.known_as.get(address, _NOBODY)[1] == NOT_KNOWN:
                self.known_as[address] = (role, service_id)
        self._ask_named(group)

    def silent_services(self) -> list[SilentService]:
        """Returns silent services with roles and ids as known by now. Some were queried before any
        service had named them."""
        named = [
            replace(service, role=self.known_as[address][0], id=self.known_as[address][1])
            for address, service in self._silent.items()
        ]
        return sorted(named, key=lambda service: (service.role, service.id, service.address))

    def short_states(self) -> list[ServiceState]:
        """Returns the short states of services that sent no full state in time."""
        found = {(state.role, state.id): state for state in self._short_states.values()}
        return [found[identity] for identity in sorted(found) if identity not in self.states]


async def answers_probe(
    connections: ExplainConnections, address: str, timeout_ms: int, *, patient: bool = False
) -> bool:
    """Returns whether the service answers a health check (`InspectApi.probe`)."""
    try:
        await connections.inspected(address).probe(timeout_ms, patient=patient)
    except UnreachableError:
        return False
    return True


def _named_by(state: ServiceState) -> Iterable[tuple[str, str, int]]:
    """Yields address, role and id of each service that a service reports."""
    for reported in (state.broker, state.controller):
        if reported is None:
            continue
        for broker in reported.registered:
            yield broker.address, BROKER, broker.broker_id
        for departure in reported.departures:
            yield departure.address, BROKER, departure.broker_id
        for controller in reported.controllers:
            yield controller.address, CONTROLLER, controller.controller_id
        for missing in reported.missing_controllers:
            yield missing.address, CONTROLLER, missing.controller_id
    if state.broker is not None:
        yield state.broker.controller_address, CONTROLLER, NOT_KNOWN
    if state.controller is not None:
        yield state.controller.active_address, CONTROLLER, NOT_KNOWN
