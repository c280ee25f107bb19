"""Has a cluster explained, whatever of it still answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tidelog.client.clock import Clock, SystemClock
from tidelog.client.connections import GrpcConnections
from tidelog.client.explaining import DEFAULT_TIMEOUT_MS, ExplainConnections, Explainer, Identity
from tidelog.client.hedging import first_answer
from tidelog.errors import TidelogError
from tidelog.inspection.model import Explanation, Finding, Scope
from tidelog.rpc.inspect_codec import from_wire
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import inspect_pb2

# A service that has not explained within this is joined by the next; the first answer counts.
HEDGE_MS = 1_000
# What a service needs beyond the time that it gives to others.
ANSWER_GRACE_MS = 3_000


async def explain_cluster(
    addresses: Sequence[str],
    scope: Scope,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    clock: Clock | None = None,
    connect: Callable[[], ExplainConnections] = GrpcConnections,
    known: Mapping[str, Identity] | None = None,
) -> Explanation:
    """By the word of a service that could ask all the others. Where it could not, or did not
    know all of `addresses`, by asking them from here, unless that reaches fewer: after a cut
    of the network each sees another part.

    Raises `NobodyAnswersError`, and `TidelogError` where the topic or partition does not
    exist."""
    explainer = Explainer(clock or SystemClock(), connect)
    from_here = asyncio.create_task(
        explainer.explain(addresses, scope, timeout_ms, known=known or {})
    )
    connections = connect()
    try:
        told = await _ask_services(connections, addresses, scope, timeout_ms)
        if told is not None and not told.silent and _covers(told, addresses):
            return told
        try:
            seen = await from_here
        except UnreachableError:
            if told is None:
                raise
            return told
        return seen if told is None or _answered(seen) >= _answered(told) else told
    finally:
        from_here.cancel()
        await asyncio.gather(from_here, return_exceptions=True)
        await connections.close()


def _covers(explanation: Explanation, addresses: Sequence[str]) -> bool:
    """Whether all of these were asked: of those that are down the cluster may not know."""
    asked = {service.rpartition(" ")[2] for service in explanation.asked}
    return asked.issuperset(addresses)


def _answered(explanation: Explanation) -> int:
    return len(explanation.asked) - len(explanation.silent)


async def _ask_services(
    connections: ExplainConnections, addresses: Sequence[str], scope: Scope, timeout_ms: int
) -> Explanation | None:
    """None: none of them explains."""
    answer, _ = await first_answer(
        addresses,
        lambda address: _ask_one(connections, address, scope, timeout_ms),
        HEDGE_MS,
        (UnreachableError, _CannotExplainError),
    )
    return answer


class _CannotExplainError(Exception):
    """The service answered, and did not explain: another may."""


async def _ask_one(
    connections: ExplainConnections, address: str, scope: Scope, timeout_ms: int
) -> Explanation:
    request = inspect_pb2.ExplainRequest(
        topic=scope.topic, partition=scope.partition, broker=scope.broker, timeout_ms=timeout_ms
    )
    try:
        answer = await connections.inspected(address).explain(request, timeout_ms + ANSWER_GRACE_MS)
    except TidelogError as error:
        raise _CannotExplainError(error.message) from error
    if answer.HasField("error"):
        raise error_from_wire(answer.error)
    return Explanation(
        tuple(from_wire(finding, Finding) for finding in answer.findings),
        tuple(answer.asked),
        tuple(answer.silent),
    )
