"""Why a partition that is moved is not yet where it is to be, or back where it was."""

from __future__ import annotations

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Reason, Symptom
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.replicas import why_behind
from tidelog.inspection.explain.words import brokers, ids, listed, name_of_key
from tidelog.inspection.model import PartitionKeyState, PartitionMoveState

# These pass by themselves.
_GOES_ON = frozenset({causes.REPLICA_CATCHING_UP, causes.BROKER_STARTING, causes.COMMAND_BACKLOG})


def move_waits(view: ClusterView, key: PartitionKeyState) -> Symptom | None:
    """Of a partition that has a leader; None: it is not moved, or waits for nobody."""
    move = key.move
    if move is None or not move.waits_for:
        return None
    found = [(b, why_behind(view, key, b)) for b in move.waits_for]
    words = "; ".join(_why(view, key, *each) for each in found)
    reasons = tuple(reason for _, reason in found if reason is not None)
    hinders = any(reason.root.cause not in _GOES_ON for reason in reasons)
    waits = _cancellation_waits if move.cancelled else _move_waits
    return waits(key, move, words, reasons, hinders)


def _move_waits(
    key: PartitionKeyState,
    move: PartitionMoveState,
    words: str,
    reasons: tuple[Reason, ...],
    hinders: bool,
) -> Symptom:
    name = name_of_key(key)
    waited = brokers(move.waits_for)
    return Symptom(
        causes.MOVE_WAITS,
        causes.WARNING if hinders else causes.INFO,
        name,
        f"{name} is moved from {listed(move.original)} to {listed(move.target)} and waits for "
        f"{waited} to be in sync: {words}",
        f"are moved and wait for {waited} to be in sync: {words}",
        f"Help {waited}; see what it follows from. Or cancel operation {move.operation}: until "
        "then the original replicas serve."
        if hinders
        else "Nothing; it goes on by itself.",
        (_evidence(key, move),),
        reasons,
        move.waits_for[0] if len(move.waits_for) == 1 else -1,
    )


def _cancellation_waits(
    key: PartitionKeyState,
    move: PartitionMoveState,
    words: str,
    reasons: tuple[Reason, ...],
    hinders: bool,
) -> Symptom:
    name = name_of_key(key)
    waited = brokers(move.waits_for)
    few = "too few of its original replicas are in sync to hold alone what is committed"
    return Symptom(
        causes.CANCELLATION_WAITS,
        causes.WARNING if hinders else causes.INFO,
        name,
        f"the move of {name} from {listed(move.original)} to {listed(move.target)} is cancelled, "
        f"and it cannot go back yet, because {few}: {words}",
        f"are moved, cancelled and cannot go back yet, because {few}: {words}",
        f"Help {waited}, or as many of them as min ISR asks for; see what it follows from."
        if hinders
        else "Nothing; it goes back by itself.",
        (_evidence(key, move),),
        reasons,
        move.waits_for[0] if len(move.waits_for) == 1 else -1,
    )


def _why(view: ClusterView, key: PartitionKeyState, broker_id: int, reason: Reason | None) -> str:
    if reason is not None:
        return f"broker {broker_id} {reason.words}"
    progress = view.progress(key, broker_id)
    if progress is None:
        return f"nobody tells how far broker {broker_id} is"
    if progress.last_fetch_ms < 0:
        return f"broker {broker_id} has yet to fetch"
    return f"broker {broker_id} has every record and is about to be admitted"


def _evidence(key: PartitionKeyState, move: PartitionMoveState) -> str:
    return (
        f"{name_of_key(key)}: operation {move.operation}; the replicas are {listed(key.replicas)}, "
        f"the ISR is {listed(ids(key.isr))}, min ISR is {key.min_isr}"
    )
