"""Asks all services of a cluster side by side how they stand, and explains what is wrong.

    explained = await Explainer(SystemClock()).explain(["127.0.0.1:7501"], Scope("sea", 0))

Each answer names further services, which are asked at once; those that do not answer cost
no more than the time that all were given, or LEAST_ANSWER_MS where they were named late, and
PROBE_GRACE_MS. It needs neither a controller nor the store.

A service is said to stand still only where it takes connections and does not answer a health
check either: that costs it nothing, so that one that lives answers it however busy it is.

What is pure runs in threads: ten thousand partitions that are unwell take half a second, and
whoever explains may be a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from tidelog.client.clock import Clock
from tidelog.client.connections import Connections, GrpcConnections, InspectConnections
from tidelog.client.tcp_dial import dial as tcp_dial
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.explain import (
    Listening,
    Observed,
    SilentService,
    active_controller,
    explain,
)
from tidelog.inspection.explain.observed import BROKER, CONTROLLER, name_of
from tidelog.inspection.explain.words import span
from tidelog.inspection.model import (
    LEAST_ANSWER_MS,
    NOT_KNOWN,
    Explanation,
    InSyncMember,
    PartitionKeyState,
    Scope,
    ServiceState,
    StateRequest,
)
from tidelog.rpc.inspect_codec import from_wire, to_wire
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import broker_pb2, inspect_pb2

DEFAULT_TIMEOUT_MS = 2_000
# Of one cluster; further ones are not asked.
MAX_SERVICES = 1_000
# What a health check has beyond the time for the answer itself.
PROBE_GRACE_MS = 1_000
# Between two looks at a replica that lags, to see how fast it comes.
RATE_SAMPLE_MS = 500
# Where no controller tells of partitions, so many brokers are asked for what they have read.
MAX_METADATA_ATTEMPTS = 3

# In place of the address of the service that explains.
_OWN = ""

# Role and id of the service that is to be at an address.
Identity = tuple[str, int]
_NOBODY_KNOWN: Mapping[str, Identity] = MappingProxyType({})

Dial = Callable[[str], Awaitable[Listening]]
Describe = Callable[[StateRequest], Awaitable[ServiceState]]


class ExplainConnections(Connections, InspectConnections, Protocol):
    """Both what clients ask and what services tell of themselves."""


class NobodyAnswersError(UnreachableError):
    """Not one of the addresses, and of those that they would have named."""

    def __init__(self, silent: Sequence[SilentService]) -> None:
        said = "; ".join(f"{service} {service.listening.value}" for service in silent)
        super().__init__("any service", said or "no address is known")
        self.silent = tuple(silent)


@dataclass(slots=True)
class _Round:
    """Who was asked, who is known by which address, and what they said. `answered_at`: an
    address of each that answered, which need not be the one that it advertises."""

    request: StateRequest
    own: Describe | None
    timeout_ms: int
    connections: ExplainConnections
    known_as: dict[str, Identity] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)
    states: dict[tuple[str, int], ServiceState] = field(default_factory=dict)
    answered_at: dict[tuple[str, int], str] = field(default_factory=dict)
    silent: dict[str, SilentService] = field(default_factory=dict)

    def take(self, state: ServiceState, address: str) -> None:
        self.states.setdefault((state.role, state.id), state)
        self.answered_at.setdefault((state.role, state.id), address)
        for address, role, service_id in _named_by(state):
            if address and self.known_as.get(address, ("", NOT_KNOWN))[1] == NOT_KNOWN:
                self.known_as[address] = (role, service_id)

    def unasked(self) -> list[str]:
        """Addresses that have been named meanwhile; registrations before who has left."""
        free = MAX_SERVICES - len(self.asked)
        return [address for address in self.known_as if address not in self.asked][:free]

    def silent_services(self) -> list[SilentService]:
        """As they are known by now: some were asked before anybody had told of them."""
        named = [
            replace(service, role=self.known_as[address][0], id=self.known_as[address][1])
            for address, service in self.silent.items()
        ]
        return sorted(named, key=lambda service: (service.role, service.id, service.address))


class Explainer:
    """`connect`: new connections for each question, closed when it is answered, so that none
    is kept to a service that is gone, or waits to be tried again."""

    def __init__(
        self,
        clock: Clock,
        connect: Callable[[], ExplainConnections] = GrpcConnections,
        dial: Dial = tcp_dial,
    ) -> None:
        self._clock = clock
        self._connect = connect
        self._dial = dial

    async def explain(
        self,
        addresses: Iterable[str],
        scope: Scope,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        own: Describe | None = None,
        known: Mapping[str, Identity] = _NOBODY_KNOWN,
    ) -> Explanation:
        """`own`: the service that explains, which asks itself without a call. `known`: who is
        to be at which of the addresses, for those that do not answer. Raises
        `NobodyAnswersError`, and `TidelogError` (UNKNOWN_TOPIC_OR_PARTITION) for a topic or
        partition that does not exist."""
        observed = await self.observe(addresses, scope, timeout_ms, own, known)
        answered = [f"{name_of(state)} at {state.address}" for state in observed.states]
        silent = [str(service) for service in observed.silent]
        findings = await asyncio.to_thread(explain, observed)
        return Explanation(findings, (*answered, *silent), tuple(silent))

    async def observe(
        self,
        addresses: Iterable[str],
        scope: Scope,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        own: Describe | None = None,
        known: Mapping[str, Identity] = _NOBODY_KNOWN,
    ) -> Observed:
        connections = self._connect()
        request = StateRequest(scope.topic, scope.partition, only_unwell=not scope.topic)
        try:
            found = _Round(request, own, timeout_ms, connections)
            for address in addresses:
                found.known_as[address] = known.get(address, ("", NOT_KNOWN))
            return await self._observe(found, scope)
        finally:
            await connections.close()

    async def _observe(self, found: _Round, scope: Scope) -> Observed:
        if found.own is not None:
            state = await found.own(found.request)
            found.asked[state.address] = None
            found.take(state, _OWN)
        await self._ask_all(found)
        states = sorted(found.states.values(), key=lambda state: (state.role, state.id))
        silent = found.silent_services()
        if not states:
            raise NobodyAnswersError(silent)
        if scope.broker is not None:
            _require_broker(found, scope.broker)
        metadata = await self._partitions(found, states, silent, scope)
        earlier, states = await self._look_again(found, states)
        return Observed(states, silent, scope, metadata, earlier, RATE_SAMPLE_MS if earlier else 0)

    async def _ask_all(self, found: _Round) -> None:
        """One after another as they become known, all within the round's time; who is named
        when that is nearly over has LEAST_ANSWER_MS all the same."""
        give_up_ms = self._clock.monotonic_ms() + found.timeout_ms
        waiting: list[asyncio.Task[None]] = []
        try:
            while True:
                for address in found.unasked():
                    found.asked[address] = None
                    left_ms = max(LEAST_ANSWER_MS, give_up_ms - self._clock.monotonic_ms())
                    waiting.append(asyncio.create_task(self._ask(found, address, left_ms)))
                if not waiting:
                    return
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting:
                    if task.done():
                        task.result()
                waiting = [task for task in waiting if not task.done()]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _ask(self, found: _Round, address: str, timeout_ms: int) -> None:
        # Beside the question, so that a service that is late with both is known to live.
        probe = asyncio.create_task(
            answers_probe(found.connections, address, timeout_ms + PROBE_GRACE_MS, patient=True)
        )
        try:
            found.take(await self._describe(found, found.request, address, timeout_ms), address)
        except UnreachableError as error:
            listening, said = await self._dial(address), "gave no answer"
            if listening in (Listening.ACCEPTS, Listening.SILENT) and await probe:
                listening = Listening.BUSY
            if error.reason.startswith("DEADLINE_EXCEEDED"):
                said += f" within {span(timeout_ms)}"
        except TidelogError as error:
            listening, said = Listening.ERRS, f'answered "{error.message}"'
        else:
            return
        finally:
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)
        found.silent[address] = SilentService(address, listening, said)

    async def _describe(
        self, found: _Round, request: StateRequest, address: str, timeout_ms: int
    ) -> ServiceState:
        if address == _OWN and found.own is not None:
            return await found.own(request)
        answer = await found.connections.inspected(address).describe_service(
            to_wire(request, inspect_pb2.DescribeServiceRequest), timeout_ms
        )
        return await asyncio.to_thread(from_wire, answer, ServiceState)

    async def _partitions(
        self,
        found: _Round,
        states: Sequence[ServiceState],
        silent: Sequence[SilentService],
        scope: Scope,
    ) -> tuple[PartitionKeyState, ...]:
        """Partitions that the active controller tells of only when it is asked for them. What
        a broker has read of them, where no controller tells, or is asked for a topic that it
        does not know."""
        active = active_controller(states)
        if active is not None and _tells_of(active, scope):
            gone = () if scope.topic else _gone_brokers(found, states, silent)
            told = await self._keys_with(found, active, gone) if gone else ()
            if told is not None:
                return told
        brokers = [state for state in states if state.role == BROKER]
        brokers = [state for state in brokers if state.broker and state.broker.has_read_metadata]
        brokers.sort(key=lambda state: (state.store.unreachable_ms >= 0, state.id))
        topics = [scope.topic] if scope.topic else []
        for state in brokers[:MAX_METADATA_ATTEMPTS]:
            try:
                address = found.answered_at[state.role, state.id]
                answer = await found.connections.broker(
                    state.address if address == _OWN else address
                ).metadata(broker_pb2.MetadataRequest(topics=topics), found.timeout_ms)
            except (UnreachableError, TidelogError):
                continue
            if scope.topic:
                _require_known(answer, scope)
            return _keys_of(answer)
        return ()

    async def _keys_with(
        self, found: _Round, active: ServiceState, brokers: Sequence[int]
    ) -> tuple[PartitionKeyState, ...] | None:
        """Partitions in whose ISRs these are, as their leaders are: of those that are well by
        their keys nobody told before. Without what is led by a broker that has come back or
        gone since the first question, of which only that can be judged. None: it answers no
        more."""
        request = replace(found.request, in_isr=brokers)
        address = found.answered_at[active.role, active.id]
        try:
            state = await self._describe(found, request, address, found.timeout_ms)
        except (UnreachableError, TidelogError):
            return None
        if state.controller is None or not state.controller.active:
            return None
        before, now = _lives(active), _lives(state)
        return tuple(
            key
            for key in state.controller.partitions
            if before.get(key.leader) == now.get(key.leader)
        )

    async def _look_again(
        self, found: _Round, states: list[ServiceState]
    ) -> tuple[list[ServiceState], list[ServiceState]]:
        """Leaders of replicas that lag, once more: as they were, and all as they are."""
        lagging = [state for state in states if _has_laggards(state)]
        if not lagging:
            return [], states
        await asyncio.sleep(RATE_SAMPLE_MS / 1000)
        again = await asyncio.gather(
            *(
                self._describe(
                    found,
                    found.request,
                    found.answered_at[state.role, state.id],
                    found.timeout_ms,
                )
                for state in lagging
            ),
            return_exceptions=True,
        )
        newer: dict[int, ServiceState] = {}
        for outcome in again:
            if isinstance(outcome, ServiceState):
                newer[outcome.id] = outcome
            elif not isinstance(outcome, UnreachableError | TidelogError):
                raise outcome
        earlier = [state for state in lagging if state.id in newer]
        return earlier, [
            newer.get(state.id, state) if state.role == BROKER else state for state in states
        ]


async def answers_probe(
    connections: ExplainConnections, address: str, timeout_ms: int, *, patient: bool = False
) -> bool:
    """Whether it answers a health check, as `InspectApi.probe` makes it."""
    try:
        await connections.inspected(address).probe(timeout_ms, patient=patient)
    except UnreachableError:
        return False
    return True


def _lives(controller: ServiceState) -> dict[int, int]:
    """Broker epochs by id."""
    told = controller.controller.registered if controller.controller is not None else ()
    return {broker.broker_id: broker.broker_epoch for broker in told}


def _gone_brokers(
    found: _Round, states: Sequence[ServiceState], silent: Sequence[SilentService]
) -> tuple[int, ...]:
    """Ids of those that may be dead or stand still, and of those that are starting."""
    ids = {
        service.id
        for service in silent
        if service.role == BROKER and service.listening is not Listening.BUSY
    }
    gone = {id_ for id_ in ids if id_ >= 0 and (BROKER, id_) not in found.states}
    gone |= {state.id for state in states if state.broker is not None and state.broker.is_starting}
    return tuple(sorted(gone))


def _named_by(state: ServiceState) -> Iterable[tuple[str, str, int]]:
    """Address, role and id of each service that a service tells of."""
    if state.broker is not None:
        for broker in state.broker.registered:
            yield broker.address, BROKER, broker.broker_id
        for departure in state.broker.departures:
            yield departure.address, BROKER, departure.broker_id
        for controller in state.broker.controllers:
            yield controller.address, CONTROLLER, controller.controller_id
        yield state.broker.controller_address, CONTROLLER, NOT_KNOWN
    if state.controller is not None:
        for broker in state.controller.registered:
            yield broker.address, BROKER, broker.broker_id
        for departure in state.controller.departures:
            yield departure.address, BROKER, departure.broker_id
        for controller in state.controller.controllers:
            yield controller.address, CONTROLLER, controller.controller_id
        yield state.controller.active_address, CONTROLLER, NOT_KNOWN


def _tells_of(active: ServiceState | None, scope: Scope) -> bool:
    """Whether an active controller tells how the partitions in question stand."""
    controller = None if active is None else active.controller
    if controller is None:
        return False
    if not scope.topic or any(d.topic == scope.topic for d in controller.deletions):
        return True
    return any(key.topic == scope.topic for key in controller.partitions)


def _has_laggards(state: ServiceState) -> bool:
    replicas = state.broker.replicas if state.broker is not None else ()
    return any(
        follower.log_end_offset >= 0
        and follower.lag_records > 0
        and (not follower.in_isr or replica.leader.hw_stalled_ms > 0)
        for replica in replicas
        if replica.leader is not None
        for follower in replica.leader.followers
    )


def _require_broker(found: _Round, broker_id: int) -> None:
    """Raises `TidelogError` (INVALID_REQUEST) for a broker that nobody has heard of."""
    known = {id_ for role, id_ in (*found.known_as.values(), *found.states) if role == BROKER}
    for state in found.states.values():
        for key in state.controller.partitions if state.controller else ():
            known.update(key.replicas)
    if broker_id not in known:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"no service knows a broker {broker_id}; known are {sorted(known)}",
        )


def _require_known(answer: broker_pb2.MetadataResponse, scope: Scope) -> None:
    for topic in answer.topics:
        if topic.HasField("error"):
            error = error_from_wire(topic.error)
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error
        count = len(topic.partitions)
        if scope.partition is not None and count and not 0 <= scope.partition < count:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {scope.partition} of topic {scope.topic!r} does not exist; its "
                f"partitions are 0 to {count - 1}",
            )


def _keys_of(answer: broker_pb2.MetadataResponse) -> tuple[PartitionKeyState, ...]:
    """Without what metadata does not tell: lives, revisions, changes."""
    return tuple(
        PartitionKeyState(
            topic.name,
            topic.topic_id,
            p.partition,
            tuple(p.replicas),
            p.leader,
            p.leader_epoch,
            tuple(InSyncMember(broker_id, NOT_KNOWN) for broker_id in p.isr),
            tuple(InSyncMember(broker_id, NOT_KNOWN) for broker_id in p.eligible_leader_replicas),
            p.min_isr,
            p.unclean_leader_epoch,
            revision=0,
            lost_records=(
                p.unclean_lost_records if p.HasField("unclean_lost_records") else NOT_KNOWN
            ),
            recovery=topic.config.get("recovery", "balanced"),
            unclean_leader_election=topic.config.get("unclean_leader_election") == "true",
            synced=topic.config.get("durability") == "synced",
        )
        for topic in answer.topics
        if not topic.HasField("error")
        for p in topic.partitions
    )
