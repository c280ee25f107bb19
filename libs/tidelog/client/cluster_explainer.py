"""Queries the state of all services of a cluster concurrently, and explains its problems.

    explained = await Explainer(SystemClock()).explain(["127.0.0.1:7501"], Scope("sea", 0))

It needs neither a controller nor the store. Services that do not answer delay it by `longest_ms`
at most. If all services that answer are too busy to describe themselves in time, the explanation
says so.

Pure code runs in threads: ten thousand unhealthy partitions take half a second, and the process
may be a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tidelog.client.clock import Clock
from tidelog.client.connections import GrpcConnections
from tidelog.client.gateway_probe import DIAL_GATEWAY_MS, DialGateway, dial_gateway
from tidelog.client.hedging import HEDGE_MS, first_answer
from tidelog.client.service_round import (
    PROBE_GRACE_MS,
    TIMES_IN_ALL,
    Describe,
    Dial,
    ExplainConnections,
    Identity,
    ServiceRound,
)
from tidelog.client.tcp_dial import dial_service
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.explain import (
    Listening,
    Observation,
    SilentService,
    active_controller,
    explain,
)
from tidelog.inspection.explain.observation import (
    BROKER,
    SilentGateway,
    TopicFactor,
    TopicFactors,
    name_of,
)
from tidelog.inspection.explain.replicas import was_caught_up_recently
from tidelog.inspection.gateway_reports import SILENT, known_gateways, state_of
from tidelog.inspection.resource_pressures import silencing
from tidelog.inspection.state_reports import (
    LEAST_ANSWER_MS,
    NOT_KNOWN,
    Explanation,
    InSyncMember,
    PartitionKeyState,
    PartitionMoveState,
    Scope,
    ServiceState,
    StateRequest,
)
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.wire import error_from_wire, partition_count
from tidelog.v1 import broker_pb2

DEFAULT_TIMEOUT_MS = 2_000
# Pause between two queries about a replica that lags, to measure how fast it catches up.
RATE_SAMPLE_MS = 500
# If no controller reports partitions, the metadata of this many brokers is queried.
MAX_METADATA_ATTEMPTS = 3
# Maximum number of gateways to probe that no controller has heard lately.
MAX_DIALED_GATEWAYS = 20

_NONE_KNOWN: Mapping[str, Identity] = MappingProxyType({})


def longest_ms(timeout_ms: int) -> int:
    """Returns the maximum duration of an explanation in which each service has `timeout_ms`.

    That is the round, and the time of one more query for all later queries together, each of which
    has at least LEAST_ANSWER_MS."""
    after_ms = timeout_ms + (MAX_METADATA_ATTEMPTS + 1) * LEAST_ANSWER_MS + RATE_SAMPLE_MS
    return TIMES_IN_ALL * timeout_ms + PROBE_GRACE_MS + max(after_ms, DIAL_GATEWAY_MS)


class NoServiceAnswersError(UnreachableError):
    """No service answered at any known address."""

    def __init__(self, silent: Sequence[SilentService]) -> None:
        details = "; ".join(f"{service} {service.listening.value}" for service in silent)
        super().__init__("any service", details or "no address is known")
        self.silent = tuple(silent)


class Explainer:
    """Explains a cluster.

    `connect`: creates the connections of one explanation, which are closed at its end, so that
    none is kept to a service that is gone or waits to reconnect."""

    def __init__(
        self,
        clock: Clock,
        connect: Callable[[], ExplainConnections] = GrpcConnections,
        dial: Dial = dial_service,
        dial_gateway: DialGateway = dial_gateway,
    ) -> None:
        self._clock = clock
        self._connect = connect
        self._dial = dial
        self._dial_gateway = dial_gateway

    async def explain(
        self,
        addresses: Iterable[str],
        scope: Scope,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        own: Describe | None = None,
        known: Mapping[str, Identity] = _NONE_KNOWN,
    ) -> Explanation:
        """Returns the problems of the services that can be found through `addresses`.

        - `own`: describes the explaining service without a call; None: a client explains.
        - `known`: expected role and id of services, by address, in case they do not answer.

        Raises `NoServiceAnswersError`, and `TidelogError` (UNKNOWN_TOPIC_OR_PARTITION,
        UNKNOWN_BROKER) if the topic, partition or broker does not exist."""
        observed = await self.observe(addresses, scope, timeout_ms, own, known)
        answered = [f"{name_of(state)} at {state.address}" for state in observed.states]
        silent = [str(service) for service in observed.silent]
        findings = await asyncio.to_thread(explain, observed)
        return Explanation(
            findings,
            (*answered, *silent),
            tuple(silent),
            tuple(service.listening.value for service in observed.silent),
        )

    async def observe(
        self,
        addresses: Iterable[str],
        scope: Scope,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        own: Describe | None = None,
        known: Mapping[str, Identity] = _NONE_KNOWN,
    ) -> Observation:
        connections = self._connect()
        request = StateRequest(scope.topic, scope.partition, only_unwell=not scope.topic)
        found = ServiceRound(self._clock, connections, self._dial, request, timeout_ms, own)
        try:
            await found.ask({a: known.get(a, ("", NOT_KNOWN)) for a in addresses})
            return await self._observed(found, scope)
        finally:
            await connections.close()

    async def _observed(self, found: ServiceRound, scope: Scope) -> Observation:
        states = sorted(found.states.values(), key=lambda state: (state.role, state.id))
        silent = found.silent_services()
        if not states and all(service.listening is not Listening.BUSY for service in silent):
            raise NoServiceAnswersError(silent)
        if states and scope.broker is not None:
            _require_broker(found, scope.broker)
        dialing = asyncio.create_task(self._silent_gateways(states))
        counting = asyncio.create_task(_topic_factors(found, states, scope))
        try:
            metadata = await self._partitions(found, states, silent, scope)
            earlier, states = await self._describe_again(found, states)
            silent_gateways = await dialing
            topics = await counting
        finally:
            dialing.cancel()
            counting.cancel()
        return Observation(
            states,
            silent,
            scope,
            metadata,
            earlier,
            RATE_SAMPLE_MS if earlier else 0,
            found.short_states(),
            silent_gateways,
            [found.clocks[identity] for identity in sorted(found.clocks)],
            topics,
        )

    async def _silent_gateways(self, states: Sequence[ServiceState]) -> list[SilentGateway]:
        silent = [g for g in known_gateways(states) if state_of(g) == SILENT]
        silent = silent[:MAX_DIALED_GATEWAYS]
        listening = await asyncio.gather(*map(self._dial_gateway, silent))
        return [SilentGateway(*each) for each in zip(silent, listening, strict=True)]

    async def _partitions(
        self,
        found: ServiceRound,
        states: Sequence[ServiceState],
        silent: Sequence[SilentService],
        scope: Scope,
    ) -> tuple[PartitionKeyState, ...]:
        """Returns partitions that the states do not contain.

        From the active controller: partitions that have an unavailable broker in their ISR. If no
        controller answers, or it does not know the topic: the metadata of a broker."""
        active = active_controller(states)
        if active is not None and _reports_scope(active, scope):
            suspects = () if scope.topic else _suspect_brokers(found, states, silent)
            keys = await self._keys_with(found, active, suspects) if suspects else ()
            if keys is not None:
                return keys
        topics = [scope.topic] if scope.topic else []
        for address in _metadata_addresses(found, states):
            try:
                answer = await found.connections.broker(address).metadata(
                    broker_pb2.MetadataRequest(topics=topics), found.left_ms()
                )
            except (UnreachableError, TidelogError):
                continue
            if scope.topic:
                _require_known(answer, scope)
            return await asyncio.to_thread(_keys_of, answer)
        return ()

    async def _keys_with(
        self, found: ServiceRound, active: ServiceState, brokers: Sequence[int]
    ) -> tuple[PartitionKeyState, ...] | None:
        """Returns the partitions that have one of `brokers` in their ISR; None: the controller no
        longer answers. Its first answer omitted those with a healthy key.

        Partitions whose leader has joined or left since the first query are left out, because the
        states of services are from that query."""
        request = replace(found.request, in_isr=brokers)
        address = found.answered_at[active.role, active.id]
        try:
            state = await found.describe(request, address, found.left_ms())
        except (UnreachableError, TidelogError):
            return None
        if state.controller is None or not state.controller.active:
            return None
        before, now = _epochs_of_registered(active), _epochs_of_registered(state)
        return tuple(
            key
            for key in state.controller.partitions
            if before.get(key.leader) == now.get(key.leader)
        )

    async def _describe_again(
        self, found: ServiceRound, states: list[ServiceState]
    ) -> tuple[list[ServiceState], list[ServiceState]]:
        """Queries the leaders of lagging replicas again. Returns their earlier states, and all
        states with theirs updated."""
        lagging = await asyncio.to_thread(_with_laggards, states)
        if not lagging:
            return [], states
        await asyncio.sleep(RATE_SAMPLE_MS / 1000)
        again = await asyncio.gather(
            *(
                found.describe(
                    found.request, found.answered_at[state.role, state.id], found.left_ms()
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


def _metadata_addresses(found: ServiceRound, states: Sequence[ServiceState]) -> list[str]:
    """Returns the addresses of brokers that know the metadata; those with a reachable store first.
    At most MAX_METADATA_ATTEMPTS."""
    brokers = [state for state in states if state.role == BROKER]
    brokers = [state for state in brokers if state.broker and state.broker.has_read_metadata]
    brokers.sort(key=lambda state: (state.store.unreachable_ms >= 0, state.id))
    return [found.answered_at[s.role, s.id] for s in brokers[:MAX_METADATA_ATTEMPTS]]


async def _topic_factors(
    found: ServiceRound, states: Sequence[ServiceState], scope: Scope
) -> TopicFactors | None:
    """Returns the topics in the scope; None without an answer, and in the scope of a broker. A
    healthy topic with a single replica is in no state of a service."""
    if scope.broker is not None:
        return None
    request = broker_pb2.MetadataRequest(
        topics=[scope.topic] if scope.topic else [], without_partitions=True
    )

    async def ask(address: str) -> broker_pb2.MetadataResponse:
        return await found.connections.broker(address).metadata(request, LEAST_ANSWER_MS)

    addresses = _metadata_addresses(found, states)
    answer, _ = await first_answer(addresses, ask, HEDGE_MS, (UnreachableError, TidelogError))
    if answer is None:
        return None
    topics = [TopicFactor(topic.name, topic.replication_factor) for topic in answer.topics]
    return TopicFactors(topics, len(answer.brokers))


def _epochs_of_registered(controller: ServiceState) -> dict[int, int]:
    """Returns the epochs of registered brokers, by id."""
    registered = controller.controller.registered if controller.controller is not None else ()
    return {broker.broker_id: broker.broker_epoch for broker in registered}


def _suspect_brokers(
    found: ServiceRound, states: Sequence[ServiceState], silent: Sequence[SilentService]
) -> tuple[int, ...]:
    """Returns the ids of brokers whose partitions may be affected, however healthy their keys are:
    those that did not answer, are starting, or report a shortage that makes them late."""
    ids = {service.id for service in silent if service.role == BROKER}
    suspects = {id_ for id_ in ids if id_ >= 0 and (BROKER, id_) not in found.states}
    for state in states:
        if state.broker is not None and state.broker.is_starting:
            suspects.add(state.id)
        reporting = state.controller or state.broker
        for pressure in reporting.pressures if reporting is not None else ():
            if silencing({pressure.resource: pressure}):
                suspects.add(pressure.broker_id)
    return tuple(sorted(suspects))


def _reports_scope(active: ServiceState | None, scope: Scope) -> bool:
    """Returns whether an active controller reports the partitions in `scope`."""
    controller = None if active is None else active.controller
    if controller is None:
        return False
    deleted_topics = (d.topic for d in controller.deletions if not d.first_partition)
    if not scope.topic or scope.topic in deleted_topics:
        return True
    return any(key.topic == scope.topic for key in controller.partitions)


def _with_laggards(states: Sequence[ServiceState]) -> list[ServiceState]:
    return [state for state in states if _has_laggards(state)]


def _has_laggards(state: ServiceState) -> bool:
    replicas = state.broker.replicas if state.broker is not None else ()
    return any(
        follower.log_end_offset >= 0
        and follower.lag_records > 0
        and not was_caught_up_recently(follower)
        and (not follower.in_isr or replica.leader.hw_stalled_ms > 0)
        for replica in replicas
        if replica.leader is not None
        for follower in replica.leader.followers
    )


def _require_broker(found: ServiceRound, broker_id: int) -> None:
    """Raises `TidelogError` (UNKNOWN_BROKER) if no service knows the broker."""
    known = {id_ for role, id_ in (*found.known_as.values(), *found.states) if role == BROKER}
    for state in found.states.values():
        for key in state.controller.partitions if state.controller else ():
            known.update(key.replicas)
        for part in (state.controller, state.broker):
            known.update(start.broker_id for start in (part.rejected_starts if part else ()))
    if broker_id not in known:
        raise TidelogError(
            ErrorCode.UNKNOWN_BROKER,
            f"no service knows a broker {broker_id}; known are {sorted(known)}",
        )


def _require_known(answer: broker_pb2.MetadataResponse, scope: Scope) -> None:
    for topic in answer.topics:
        if topic.HasField("error"):
            error = error_from_wire(topic.error)
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error
        count = partition_count(topic)
        if scope.partition is not None and count and not 0 <= scope.partition < count:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {scope.partition} of topic {scope.topic!r} does not exist; its "
                f"partitions are 0 to {count - 1}",
            )


def _keys_of(answer: broker_pb2.MetadataResponse) -> tuple[PartitionKeyState, ...]:
    """Converts metadata, which has no broker epochs of members, no revisions and no changes."""
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
            move=_move_of(p),
            replication_factor=topic.replication_factor,
        )
        for topic in answer.topics
        if not topic.HasField("error")
        for p in topic.partitions
    )


def _move_of(p: broker_pb2.PartitionMetadata) -> PartitionMoveState | None:
    """Returns the move of a partition. Only the active controller knows if it is cancelled."""
    if not p.moving_operation:
        return None
    return PartitionMoveState(
        p.moving_operation,
        tuple(p.original_replicas),
        tuple(p.target_replicas),
        waits_for=tuple(b for b in p.target_replicas if b not in p.isr),
    )
