"""Explains why a move of a partition, or its cancellation, has not ended yet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidelog.inspection.explain import causes, next_steps
from tidelog.inspection.explain.causes import Reason, Root, Symptom
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import brokers, ids, listed, name_of_key
from tidelog.inspection.explain.move_rates import tightest_throttle
from tidelog.inspection.explain.replicas import rejection_of, was_caught_up_recently, why_behind
from tidelog.inspection.state_reports import PartitionKeyState, PartitionMoveState
from tidelog.model import TopicPartition
from tidelog.phrases import plural
from tidelog.units import format_size_bytes, size_text

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
    blocked = any(reason.root.cause not in _CONTINUES for reason in reasons)
    name, waited = name_of_key(key), brokers(move.waits_for)
    path = f"from {listed(move.original)} to {listed(move.target)}"
    if move.cancelled:
        cause, lines = causes.CANCELLATION_WAITS, list[str]()
        few = "too few of its original replicas are in sync to hold alone what is committed"
        one = f"the move of {name} {path} is cancelled, and it cannot be rolled back yet, because "
        one += f"{few}: {words}"
        many = f"are moved, cancelled and cannot be rolled back yet, because {few}: {words}"
        next_step = (
            f"Repair {waited}, or as many of them as min ISR requires; see what it follows from."
            if blocked
            else "Nothing; it is rolled back by itself."
        )
    else:
        cause, lines = causes.MOVE_WAITS, _lines_of_bound(reasons)
        one = f"{name} is moved {path} and waits for {waited} to be in sync: {words}"
        many = f"are moved and wait for {waited} to be in sync: {words}"
        next_step = _next_step(move, reasons, blocked=blocked)
    return Symptom(
        cause,
        causes.WARNING if blocked else causes.INFO,
        name,
        one,
        many,
        partial(_or_cancel, view, next_step) if blocked and not move.cancelled else next_step,
        (_evidence(key, move), *lines),
        reasons,
        move.waits_for[0] if len(move.waits_for) == 1 else -1,
    )


def _or_cancel(view: ClusterView, repair_step: str, names: Sequence[TopicPartition]) -> str:
    """Returns what helps the moves of these partitions, and the commands that cancel all of
    them."""
    keys = [view.keys[name] for name in names]
    rates = [rate for key in keys if (rate := _sufficient_rate(view, key)) is not None]
    if rates:
        raised = f"tidelog throttle set {max(rates) // 1_000}kB"
        repair_step = f"Raise the throttle above the write rate: {raised}."
    operations = dict.fromkeys(key.move.operation for key in keys if key.move is not None)
    commands = [f"tidelog operations cancel {operation}" for operation in operations]
    cancel = "cancel it" if len(commands) == 1 else "cancel them"
    return f"{repair_step} Or {cancel}: {listed(commands, next_steps.MAX_COMMANDS)}"


def _next_step(move: PartitionMoveState, reasons: Sequence[Reason], *, blocked: bool) -> str:
    if blocked:
        return (
            f"Repair {brokers(move.waits_for)}; see what it follows from. Until then the original "
            "replicas serve."
        )
    if any(reason.root.cause == causes.MOVES_BOUND for reason in reasons):
        return (
            "Nothing; it continues by itself, and faster with a higher limit: tidelog throttle set "
            "RATE"
        )
    return "Nothing; it continues by itself."


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
    words = f"copies what it lacks, at no more than {format_size_bytes(bound.bytes_per_second)}/s"
    cause = causes.MOVES_BOUND
    if bound.never_ends:
        cause = causes.MOVES_BOUND_BELOW_WRITES
        words += f", which never ends: {size_text(bound.written)}/s are written meanwhile"
    # A rate that was sampled over half a second does not show bursts.
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


def _sufficient_rate(view: ClusterView, key: PartitionKeyState) -> int | None:
    """Returns a bound that lets the copies of a partition end. None if the present one does."""
    waits_for = key.move.waits_for if key.move else ()
    bounds = [tightest_throttle(view, key, broker_id) for broker_id in waits_for]
    needed = [bound.sufficient for bound in bounds if bound is not None and bound.never_ends]
    return max(needed, default=None)


def _lines_of_bound(reasons: Sequence[Reason]) -> list[str]:
    """Returns only the lines of bounds; other reasons have findings with their evidence."""
    bound = [reason for reason in reasons if reason.root.cause in causes.BOUNDS_ON_MOVES]
    return [line for reason in bound for line in reason.evidence]


def _why(view: ClusterView, key: PartitionKeyState, broker_id: int, reason: Reason | None) -> str:
    if reason is not None:
        return f"broker {broker_id} {reason.words}"
    progress = view.progress(key, broker_id)
    if progress is None:
        return f"no service reports the progress of broker {broker_id}"
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
