"""How operations stand, for those who ask. Pure: reads the context, changes nothing."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.policies.reassignment import (
    is_cancelled,
    min_isr_in_force,
    missing_for_cancellation,
    missing_for_switch,
)
from tidelog_controller.requests.operation_plans import unknown_operation
from tidelog_controller.state.admin_answers import (
    MoveView,
    OperationMovesAnswer,
    OperationsAnswer,
    OperationView,
    Progress,
)
from tidelog_controller.state.admin_requests import DescribeOperation, ListOperations
from tidelog_controller.state.context import Context
from tidelog_controller.state.operations import MoveState, move_state
from tidelog_runtime.metadata.operations import OperationMove, OperationState

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000


def page_size(asked: int) -> int:
    return min(asked, MAX_PAGE_SIZE) if asked > 0 else DEFAULT_PAGE_SIZE


def position_of(page_token: str) -> int:
    """Of a token that is a position in a list that does not change."""
    if not page_token:
        return 0
    if not page_token.isdecimal() or not page_token.isascii():
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the page token {page_token[:40]!r} was never given; begin without one",
        )
    return int(page_token)


def view_of(context: Context, operation_id: str, wall_ms: int) -> OperationView:
    """Of one that is known."""
    held = context.operations.held[operation_id]
    entry, work = held.entry, context.operations.work_of(operation_id)
    if work is None:
        done, dropped, active = entry.moves_done, entry.moves_dropped, 0
        added = entry.replicas_to_add if entry.state is OperationState.DONE else 0
    else:
        done, dropped, active = work.done, work.dropped, len(work.active)
        added = work.replicas_added
    estimated = 0
    if work is not None and entry.state is OperationState.RUNNING and done:
        # As fast as what is done has gone; by replicas, where any are to be copied.
        elapsed_ms = max(0, wall_ms - entry.requested_at_ms)
        part, whole = (added, entry.replicas_to_add) if added else (done, entry.moves)
        estimated = wall_ms + elapsed_ms * max(0, whole - part) // part
    progress = Progress(entry.moves, done, active, dropped, entry.replicas_to_add, added, estimated)
    return OperationView(operation_id, entry, held.revision, progress)


def list_operations(context: Context, request: ListOperations, wall_ms: int) -> OperationsAnswer:
    """The newest first; a page goes on below the operation that ended the last one."""
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
    views = tuple(view_of(context, operation_id, wall_ms) for operation_id, _ in wanted[:size])
    token = str(wanted[size - 1][1]) if len(wanted) > size else ""
    return OperationsAnswer(views, token)


def describe_operation(
    context: Context, request: DescribeOperation, wall_ms: int
) -> OperationMovesAnswer:
    if request.operation_id not in context.operations.held:
        raise unknown_operation(request.operation_id)
    first = position_of(request.page_token)
    moves = context.operations.moves_of(request.operation_id)
    end = first + page_size(request.page_size)
    views = tuple(_move_view(context, request.operation_id, move) for move in moves[first:end])
    view = view_of(context, request.operation_id, wall_ms)
    return OperationMovesAnswer(view, views, str(end) if end < len(moves) else "")


def _move_view(context: Context, operation_id: str, move: OperationMove) -> MoveView:
    entry = context.operations.held[operation_id].entry
    state = context.state_to_stay(move.name)
    stands = move_state(move, operation_id, state)
    waits_for: tuple[int, ...] = ()
    if entry.state is OperationState.DONE and stands is not MoveState.DROPPED:
        stands = MoveState.DONE  # What has become of the partition since is another matter.
    elif stands is MoveState.WAITING and entry.state is not OperationState.RUNNING:
        stands = MoveState.DROPPED
    elif stands is MoveState.ACTIVE and state is not None:
        waits_for = missing_for_switch(state, context.live)
        moving = state.moving
        wanted = context.wanted_moves.get(move.name)
        if moving is not None and is_cancelled(moving, wanted):
            min_isr_of = context.topics[move.topic].config.min_isr
            min_isr = min_isr_in_force(state, min_isr_of)
            waits_for = missing_for_cancellation(state, context.live, min_isr)
    return MoveView(move, stands, waits_for)
