"""Explains why moves of an operation have not begun. Other moves are reported by partition."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Reason, Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import brokers
from tidelog.inspection.explain.replicas import why_broker_does_nothing
from tidelog.inspection.state_reports import Finding, StandingOperation
from tidelog.phrases import plural

# Causes that end by themselves.
_CONTINUES = frozenset({causes.BROKER_STARTING, causes.COMMAND_BACKLOG})


def waiting(view: ClusterView) -> Iterator[Finding]:
    """Yields operations that wait for a broker, for a leader, or for moves of other operations. An
    operation with active moves and others behind them is not reported."""
    for operation in view.control.operations:
        if operation.cancelling or not operation.moves_waiting:
            continue
        if operation.not_ready:
            yield _not_ready(view, operation)
        elif operation.without_leader and operation.without_leader == operation.moves_active:
            yield _without_leader(operation)
        elif operation.busy and not operation.moves_active:
            yield _queued(operation)


def _not_ready(view: ClusterView, operation: StandingOperation) -> Finding:
    found = [(b, _why_not_ready(view, b)) for b in operation.not_ready]
    words = "; ".join(f"broker {b} {reason.words}" for b, reason in found)
    blocked = any(reason.root.cause not in _CONTINUES for _, reason in found)
    waited = brokers(operation.not_ready)
    return Finding(
        causes.OPERATION_WAITS,
        causes.WARNING if blocked else causes.INFO,
        f"{_named(operation)} has moves that add replicas to {waited} and wait for that: {words}",
        (_evidence(operation),),
        f"Start or repair {waited}; the moves then begin by themselves. Or cancel operation "
        f"{operation.operation}."
        if blocked
        else "Nothing; they begin by themselves.",
        broker=operation.not_ready[0] if len(operation.not_ready) == 1 else -1,
        because=tuple(dict.fromkeys(str(reason.root) for _, reason in found)),
    )


def _why_not_ready(view: ClusterView, broker_id: int) -> Reason:
    reason = why_broker_does_nothing(view, broker_id)
    if reason is not None:
        return reason
    root = Root(causes.COMMAND_BACKLOG, broker_id)
    return Reason(root, "has yet to acknowledge its full state")


def _without_leader(operation: StandingOperation) -> Finding:
    count = plural(operation.without_leader, "partition")
    return Finding(
        causes.OPERATION_WAITS,
        causes.WARNING,
        f"{_named(operation)} waits for {count} to have a leader: until then they cannot be moved",
        (_evidence(operation),),
        "Bring back the replicas of partitions without a leader, or consent to their recovery; "
        f"or cancel operation {operation.operation}.",
    )


def _queued(operation: StandingOperation) -> Finding:
    busy = brokers(operation.busy)
    return Finding(
        causes.OPERATION_WAITS,
        causes.INFO,
        f"{_named(operation)} is queued: {busy} receive as many moves of other operations as "
        "max_moves_per_broker allows",
        (_evidence(operation),),
        "Nothing; it continues when those are done. A higher max_moves_per_broker speeds it up.",
    )


def _named(operation: StandingOperation) -> str:
    return f"operation {operation.operation} ({operation.kind})"


def _evidence(operation: StandingOperation) -> str:
    return (
        f"operation {operation.operation}: {operation.moves_done} moves are done, "
        f"{operation.moves_active} are active, {operation.moves_waiting} have not begun"
    )
