"""Descriptions of operations. Pure: reads the context, changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tidelog.admin_messages import Progress
from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import page_size
from tidelog_controller.policies.reassignment import (
    is_cancelled,
    missing_for_cancellation,
    missing_for_switch,
)
from tidelog_controller.requests.operation_plans import unknown_operation
from tidelog_controller.requests.operation_waits import reason_of
from tidelog_controller.state.admin_answers import (
    MoveView,
    OperationMovesAnswer,
    OperationsAnswer,
    OperationView,
)
from tidelog_controller.state.admin_requests import DescribeOperation, ListOperations
from tidelog_controller.state.context import Context
from tidelog_controller.state.operations import MoveState, move_state
from tidelog_runtime.metadata.operations import OperationMove, OperationState


class Now(NamedTuple):
    """The time of both clocks at one moment."""

    monotonic_ms: int
    wall_ms: int


def position_of(page_token: str) -> int:
    """Returns the position that a page token encodes, in a list that does not change."""
    if not page_token:
        return 0
    if not page_token.isdecimal() or not page_token.isascii():
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the page token {page_token[:40]!r} was never given; begin without one",
        )
    return int(page_token)


def view_of(context: Context, operation_id: str, now: Now) -> OperationView:
    """Describes an operation that is known."""
    held = context.operations.held[operation_id]
    entry, work = held.entry, context.operations.work_of(operation_id)
    if work is None:
        added = entry.replicas_to_add if entry.state is OperationState.DONE else 0
        copied = entry.bytes_copied
        progress = Progress(
            entry.moves,
            entry.moves_done,
            0,
            entry.moves_dropped,
            entry.replicas_to_add,
            added,
            0,
            *(copied, copied, 0, entry.moves_unmeasured),
        )
        return OperationView(operation_id, entry, held.revision, progress)
    progress = Progress(
        entry.moves,
        work.done,
        len(work.active),
        work.dropped,
        entry.replicas_to_add,
        work.replicas_added,
        0,
        work.bytes.to_copy,
        work.bytes.copied,
        work.bytes.per_second(now.monotonic_ms),
        len(work.bytes.unmeasured),
    )
    if entry.state is OperationState.RUNNING:
        elapsed_ms = max(0, now.wall_ms - entry.requested_at_ms)
        left_ms = _left_ms(progress, elapsed_ms)
        if left_ms is not None:
            progress = replace(progress, estimated_end_ms=now.wall_ms + left_ms)
    told = replace(entry, reason=reason_of(context, operation_id))
    return OperationView(operation_id, told, held.revision, progress)


def _left_ms(progress: Progress, elapsed_ms: int) -> int | None:
    """The remaining time of an operation that has run for `elapsed_ms`; None: unknown yet.

    It is estimated by bytes if all moves are measured, at the recent rate or else the average rate.
    Otherwise it is estimated by replicas if any were copied, and else by moves.
    """
    if not progress.moves_unmeasured and progress.bytes_copied:
        left = max(0, progress.bytes_to_copy - progress.bytes_copied)
        if progress.bytes_per_second:
            return left * 1_000 // progress.bytes_per_second
        return elapsed_ms * left // progress.bytes_copied
    if not progress.moves_done:
        return None
    part, whole = progress.moves_done, progress.moves
    if progress.replicas_added:
        part, whole = progress.replicas_added, progress.replicas_to_add
    return elapsed_ms * max(0, whole - part) // part


def list_operations(context: Context, request: ListOperations, now: Now) -> OperationsAnswer:
    """Lists operations, newest first; a page continues after the last one of the page before."""
    before = position_of(request.page_token)
    held = sorted(context.operations.held.items(), key=lambda item: -item[1].number)
    wanted = [
        (operation_id, h.number)
        for operation_id, h in held
        if (not before or h.number < before)
        and (not request.states or h.entry.state in request.states)
        and (not request.kinds or h.entry.kind in request.kinds)
    ]
    size = page_size(request.page_size)
    views = tuple(view_of(context, operation_id, now) for operation_id, _ in wanted[:size])
    token = str(wanted[size - 1][1]) if len(wanted) > size else ""
    return OperationsAnswer(views, token)


def describe_operation(
    context: Context, request: DescribeOperation, now: Now
) -> OperationMovesAnswer:
    if request.operation_id not in context.operations.held:
        raise unknown_operation(request.operation_id)
    first = position_of(request.page_token)
    moves = context.operations.moves_of(request.operation_id)
    end = first + page_size(request.page_size)
    views = tuple(_move_view(context, request.operation_id, move) for move in moves[first:end])
    view = view_of(context, request.operation_id, now)
    return OperationMovesAnswer(view, views, str(end) if end < len(moves) else "")


def _move_view(context: Context, operation_id: str, move: OperationMove) -> MoveView:
    entry = context.operations.held[operation_id].entry
    state = context.state_to_stay(move.name)
    stands = move_state(move, operation_id, state)
    waits_for: tuple[int, ...] = ()
    if entry.state is OperationState.DONE and stands is not MoveState.DROPPED:
        stands = MoveState.DONE  # Later changes of the partition do not matter.
    elif stands is MoveState.WAITING and entry.state is not OperationState.RUNNING:
        stands = MoveState.DROPPED
    elif stands is MoveState.ACTIVE and state is not None:
        waits_for = missing_for_switch(state, context.live)
        moving = state.moving
        wanted = context.wanted_moves.get(move.name)
        if moving is not None and is_cancelled(moving, wanted):
            min_isr = context.topics[move.topic].config.min_isr(len(moving.original))
            waits_for = missing_for_cancellation(state, context.live, min_isr)
    work = context.operations.work_of(operation_id)
    known = work.bytes.of(move.name) if work is not None else None
    if known is None:
        return MoveView(move, stands, waits_for)
    return MoveView(move, stands, waits_for, known.to_copy, known.copied)
