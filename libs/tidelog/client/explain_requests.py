"""Explains a cluster, using whichever of its services answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tidelog.client.clock import Clock, SystemClock
from tidelog.client.cluster_explainer import DEFAULT_TIMEOUT_MS, Explainer, longest_ms
from tidelog.client.connections import GrpcConnections
from tidelog.client.hedging import HEDGE_MS, first_answer
from tidelog.client.service_round import Dial, ExplainConnections, Identity, answers_probe
from tidelog.client.tcp_dial import dial_service
from tidelog.errors import TidelogError
from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import Explanation, Finding, Scope
from tidelog.rpc.inspect_requests import check_answer_time
from tidelog.rpc.message_codec import from_wire
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import inspect_pb2

# Time in which a service that was reported as silent may prove that it can be reached from here.
REACH_MS = 1_000
# Time that a service needs, beyond that of its queries, to evaluate the answers while it is busy.
ANSWER_GRACE_MS = 3_000
# States of silent services, as reported by another service, in which this client may still reach
# them. A busy or stalled service is so for every client, and another query only adds load.
_MAY_BE_REACHED = frozenset(
    {
        Listening.SILENT.value,
        Listening.REFUSES.value,
        Listening.UNRESOLVED.value,
        Listening.ERRS.value,
    }
)


async def explain_cluster(
    addresses: Sequence[str],
    scope: Scope,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    clock: Clock | None = None,
    connect: Callable[[], ExplainConnections] = GrpcConnections,
    known: Mapping[str, Identity] | None = None,
    dial: Dial = dial_service,
) -> Explanation:
    """Explains a cluster through a service that queries all the others.

    The client queries the services itself if that service could not reach some that can be reached
    from here, or did not know all of `addresses`. It uses the result unless fewer services answered
    it: after a network partition each side sees another part. The two rounds are sequential,
    because each queries all services, and a cluster that is queried twice at a time answers late.

    Raises `NoServiceAnswersError`, and `TidelogError` if the topic, partition or broker does not
    exist, or if `timeout_ms` is less than LEAST_ANSWER_MS."""
    check_answer_time(timeout_ms)
    connections = connect()
    try:
        explanation = await _explain_by_a_service(connections, addresses, scope, timeout_ms)
        if explanation is not None and not await _reaches_more(connections, explanation, addresses):
            return explanation
    finally:
        await connections.close()
    explainer = Explainer(clock or SystemClock(), connect, dial)
    try:
        own_explanation = await explainer.explain(addresses, scope, timeout_ms, known=known or {})
    except UnreachableError:
        if explanation is None:
            raise
        return explanation
    return (
        own_explanation
        if explanation is None or _answered(own_explanation) >= _answered(explanation)
        else explanation
    )


def _covers(explanation: Explanation, addresses: Sequence[str]) -> bool:
    """Returns whether all `addresses` were queried. A cluster may not know services that are
    down."""
    asked = {_address_in(service) for service in explanation.asked}
    return asked.issuperset(addresses)


def _address_in(service: str) -> str:
    """
    >>> _address_in("broker-1 at 127.0.0.1:7501")
    '127.0.0.1:7501'
    """
    return service.rpartition(" ")[2]


def _answered(explanation: Explanation) -> int:
    return len(explanation.asked) - len(explanation.silent)


async def _reaches_more(
    connections: ExplainConnections, explanation: Explanation, addresses: Sequence[str]
) -> bool:
    """Returns whether more services can be reached from here than by the explaining service."""
    if not _covers(explanation, addresses):
        return True
    # A service of an older version does not report the states of silent services.
    listening = explanation.listening or [Listening.SILENT.value] * len(explanation.silent)
    silent = [
        _address_in(service)
        for service, how in zip(explanation.silent, listening, strict=True)
        if how in _MAY_BE_REACHED
    ]
    reached = await asyncio.gather(
        *(answers_probe(connections, address, REACH_MS) for address in silent)
    )
    return any(reached)


async def _explain_by_a_service(
    connections: ExplainConnections, addresses: Sequence[str], scope: Scope, timeout_ms: int
) -> Explanation | None:
    """Returns None if no service answers, or if the first one that does cannot explain."""

    async def probed(address: str) -> str:
        await connections.inspected(address).probe(timeout_ms)
        return address

    address, _ = await first_answer(addresses, probed, HEDGE_MS, (UnreachableError,))
    if address is None:
        return None
    try:
        return await _request_explanation(connections, address, scope, timeout_ms)
    except (UnreachableError, _CannotExplainError):
        return None


class _CannotExplainError(Exception):
    """The service answered but did not explain; another one may."""


async def _request_explanation(
    connections: ExplainConnections, address: str, scope: Scope, timeout_ms: int
) -> Explanation:
    request = inspect_pb2.ExplainRequest(
        topic=scope.topic, partition=scope.partition, broker=scope.broker, timeout_ms=timeout_ms
    )
    try:
        answer = await connections.inspected(address).explain(
            request, longest_ms(timeout_ms) + ANSWER_GRACE_MS
        )
    except TidelogError as error:
        raise _CannotExplainError(error.message) from error
    if answer.HasField("error"):
        raise error_from_wire(answer.error)
    return Explanation(
        tuple(from_wire(finding, Finding) for finding in answer.findings),
        tuple(answer.asked),
        tuple(answer.silent),
        tuple(answer.listening),
    )
