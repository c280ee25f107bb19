"""Explains why a move of a partition, or its cancellation, has not ended yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tidelog.inspection.explain import causes, next_steps
from tidelog.inspection.explain.causes import Reason, Root, Symptom
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import brokers, ids, listed, name_of_key
from tidelog.inspection.explain.move_rates import tightest_throttle
from tidelog.inspection.explain.replicas import rejection_of, was_caught_up_recently, why_behind
from tidelog.inspection.model import PartitionKeyState, PartitionMoveState
from tidelog.model import TopicPartition
from tidelog.phrases import plural

# Causes that end by themselves.
_CONTINUES = frozenset(
    {
        causes.REPLICA_CATCHING_UP,
        causes.BROKER_STARTING,
        causes.COMMAND_BACKLOG,
        causes.MOVES_BOUND,
    }
)
# Causes that a bound on moves resembles.
_BEHIND = frozenset({causes.REPLICA_CATCHING_UP, causes.REPLICA_SLOW, causes.LEADER_SLOW})


def move_waits(view: ClusterView, key: PartitionKeyState) -> Symptom | None:
    """Returns a symptom for a partition with a leader. None if it is not moved, or does not
    wait."""
    move = key.move
    if move is None or not move.waits_for:
        return None
    found = [(b, _reason(view, key, move, b)) for b in move.waits_for]
    words = "; ".join(_why(view, key, *each) for each in found)
    reasons = tuple(reason for _, reason in found if reason is not None)
    hinders = any(reason.root.cause not in _CONTINUES for reason in reasons)
    waits = _cancellation_waits if move.cancelled else _move_waits
    symptom = waits(key, move, words, reasons, hinders)
    if move.cancelled or not hinders:
        return symptom
    next_for = partial(_or_cancel, view, symptom.next_step)
    return replace(symptom, next_step=next_for([symptom.name]), next_for=next_for)


def _or_cancel(view: ClusterView, help_step: str, names: Sequence[TopicPartition]) -> str:
    """Returns what helps the moves of these partitions, and the commands that cancel all of
    them."""
    keys = [view.keys[name] for name in names]
    rates = [rate for key in keys if (rate := _sufficient_rate(view, key)) is not None]
    if rates:
        raised = f"tidelog throttle set {max(rates) // 1_000}kB"
        help_step = f"Raise the throttle above the write rate: {raised}."
    operations = dict.fromkeys(key.move.operation for key in keys if key.move is not None)
    commands = [f"tidelog operations cancel {operation}" for operation in operations]
    give_up = "give the move up" if len(commands) == 1 else "give the moves up"
    return f"{help_step} Or {give_up}: {listed(commands, next_steps.MAX_COMMANDS)}"


def _reason(
    view: ClusterView, key: PartitionKeyState, move: PartitionMoveState, broker_id: int
) -> Reason | None:
    """A replica that is slow only because moves are bound needs no repair."""
    reason = why_behind(view, key, broker_id)
    if reason is None or broker_id in move.original:
        return reason
    if reason.root.cause not in _BEHIND and not _seems_cut_off(view, key, broker_id, reason):
        return reason
    bound = tightest_throttle(view, key, broker_id)
    if bound is None:
        return reason
    words = f"copies what it lacks, at no more than {bound.bytes_per_second:,} bytes per second"
    cause = causes.MOVES_BOUND
    if bound.never_ends:
        cause = causes.MOVES_BOUND_BELOW_WRITES
        words += f", which never ends: {bound.written:,} bytes per second are written meanwhile"
    # A rate that was sampled over half a second says little about bursts.
    return Reason(Root(cause), words, (*reason.evidence[:1], *bound.lines()))


def _seems_cut_off(
    view: ClusterView, key: PartitionKeyState, broker_id: int, reason: Reason
) -> bool:
    """Whether a replica with bound moves only seems cut off.

    A bound makes a replica wait between two fetches. That its leader sees no fetch is no sign of
    the network, unless the replica itself reports a failed fetch.
    """
    replica = view.replica(key, broker_id)
    fails = replica is not None and replica.follower is not None and replica.follower.problem
    return reason.root.cause == causes.REPLICA_CUT_OFF and not fails


def _is_bound(reasons: Sequence[Reason]) -> bool:
    return any(reason.root.cause == causes.MOVES_BOUND for reason in reasons)


def _sufficient_rate(view: ClusterView, key: PartitionKeyState) -> int | None:
    """Returns a bound that lets the copies of a partition end. None if the present one does."""
    waits_for = key.move.waits_for if key.move else ()
    bounds = [tightest_throttle(view, key, broker_id) for broker_id in waits_for]
    needed = [bound.sufficient for bound in bounds if bound is not None and bound.never_ends]
    return max(needed, default=None)


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
        f"Help {waited}; see what it follows from. Until then the original replicas serve."
        if hinders
        else "Nothing; it continues by itself"
        + (
            ", and faster with a higher bound: tidelog throttle set RATE"
            if _is_bound(reasons)
            else "."
        ),
        (_evidence(key, move), *_lines_of_bound(reasons)),
        reasons,
        move.waits_for[0] if len(move.waits_for) == 1 else -1,
    )


def _lines_of_bound(reasons: Sequence[Reason]) -> list[str]:
    """Returns only the lines of bounds; other reasons have findings with their evidence."""
    bound = [reason for reason in reasons if reason.root.cause in causes.BOUNDS_ON_MOVES]
    return [line for reason in bound for line in reason.evidence]


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
        return f"no service reports the progress of broker {broker_id} is"
    if progress.last_fetch_ms < 0:
        return f"broker {broker_id} has yet to fetch"
    if rejection_of(view, key, broker_id) is not None:
        return f"broker {key.leader}, its leader, rejects the fetches of broker {broker_id}"
    if progress.lag_records == 0:
        return f"broker {broker_id} has every record and is about to be admitted"
    if was_caught_up_recently(progress):
        return f"broker {broker_id} had every record a moment ago and is about to be admitted"
    return f"broker {broker_id} lacks {plural(progress.lag_records, 'record')}"


def _evidence(key: PartitionKeyState, move: PartitionMoveState) -> str:
    return (
        f"{name_of_key(key)}: operation {move.operation}; the replicas are {listed(key.replicas)}, "
        f"the ISR is {listed(ids(key.isr))}, min ISR is {key.min_isr}"
    )
