"""Requests that begin and cancel operations, and the begin, end and removal of operations."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.requests.operation_fingerprint import (
    canonical_text,
    fingerprint_of,
    kind_of,
)
from tidelog_controller.requests.operation_plans import (
    assignment_of,
    check_expected,
    check_operation_revision,
    ended,
    plan_operation,
    summary_of,
    unknown_operation,
)
from tidelog_controller.requests.operation_views import Now, view_of
from tidelog_controller.requests.plan_queue import (
    OnRemoved,
    PlanQueue,
    is_current,
    is_guarded,
    on_removed,
)
from tidelog_controller.requests.plan_writing import (
    MAX_CHUNKS_IN_FLIGHT,
    PlanWriting,
    plan_revision,
    plan_writing,
    superfluous_keys,
    unreadable_key,
)
from tidelog_controller.requests.request_checks import (
    DEFAULT_TIMEOUT_MS,
    check_operation_id,
    created_by,
    outcome_unknown,
)
from tidelog_controller.requests.rollback import (
    factors_to_roll_back,
    marks_to_roll_back,
    with_rollback,
)
from tidelog_controller.state.admin_answers import OperationAnswer, PlanSummary
from tidelog_controller.state.admin_requests import (
    BeginOperation,
    CancelOperation,
)
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import PlanMade
from tidelog_controller.state.mutations import OperationCommit, OperationPlan, OperationUpdate
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.identifiers import new_id
from tidelog_runtime.metadata.operations import (
    OperationEntry,
    OperationMove,
    OperationState,
)


@dataclass(slots=True)
class _Draft:
    """A request whose plan is being made. `wall_ms`: the time of the request."""

    request: BeginOperation | CancelOperation
    deadline_ms: int
    wall_ms: int


@dataclass(slots=True)
class _Beginning:
    """`commit`: the transaction that follows once the plan is written."""

    request: BeginOperation
    operation_id: str
    planned: OperationPlan
    layout: int  # that of the context when the plan was last found valid
    deadline_ms: int
    plan: PlanWriting
    commit: OperationCommit
    commit_begun: bool = False


@dataclass(slots=True)
class _Cancelling:
    request: CancelOperation
    deadline_ms: int


class OperationAdmin:
    """`elections_done`: whether an operation whose moves are done may end."""

    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        rng: random.Random,
        elections_done: Callable[[str], bool],
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._rng = rng
        self._elections_done = elections_done
        self._plan_queue = PlanQueue(context)
        self._drafts: dict[int, _Draft] = {}
        self._beginnings: dict[int, _Beginning] = {}
        self._cancellings: dict[int, _Cancelling] = {}

    def begin(self, request: BeginOperation, now: Now) -> list[Command]:
        """Rejects an invalid request, or requests a plan; `planned` and `advance` continue."""
        operation_id = request.operation_id
        try:
            if operation_id:
                check_operation_id(operation_id)
                known = self._known(request)
                if known is not None and not request.dry_run:
                    return self._reply_known(request, now)
            wanted = request.wanted
            self._plan_queue.enqueue(
                request.request_id,
                lambda context: plan_operation(context, wanted),
                confirmed=not request.dry_run,
            )
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if not (operation_id or request.dry_run):
            operation_id = new_id(self._rng)
        self._drafted(request._replace(operation_id=operation_id), now)
        return []

    def cancel(self, request: CancelOperation, now: Now) -> list[Command]:
        operation_id = request.operation_id
        try:
            check_operation_revision(self._context, operation_id, request.expected_revision)
            self._check_cancellable(operation_id)
            if request.dry_run:
                self._plan_queue.enqueue(
                    request.request_id,
                    lambda context: OperationPlan(_cancellation_plan(context, operation_id)),
                    confirmed=False,
                )
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if request.dry_run:
            self._drafted(request, now)
        else:
            deadline_ms = now.monotonic_ms + DEFAULT_TIMEOUT_MS
            self._cancellings[request.request_id] = _Cancelling(request, deadline_ms)
        return []

    def planned(self, event: PlanMade, now: Now) -> list[Command]:
        finished = self._plan_queue.made(event)
        if finished is None:
            return []
        draft = self._drafts.pop(finished.request_id)
        request, planned, error = draft.request, finished.planned, finished.error
        if planned is None:
            return [Reply(request.request_id, AdminReply(error))]
        answer = OperationAnswer(None, planned.summary)
        if isinstance(request, CancelOperation):
            return [Reply(request.request_id, AdminReply(None, answer=answer))]
        try:
            if self._known(request) is not None and not request.dry_run:
                return self._reply_known(request, now)
            check_expected(planned.summary, request.expected_plan)
            if request.dry_run:
                return [Reply(request.request_id, AdminReply(None, answer=answer))]
            self._check_not_being_written(planned)
        except TidelogError as rejection:
            return [Reply(request.request_id, AdminReply(rejection))]
        self._beginnings[request.request_id] = self._beginning(draft, request, planned)
        return []

    def advance(self, now: Now) -> list[Command]:
        """Returns the commands that waiting requests and stored operations need now."""
        commands: list[Command] = []
        for draft in [d for d in self._drafts.values() if now.monotonic_ms >= d.deadline_ms]:
            self._plan_queue.forget(draft.request.request_id)
            del self._drafts[draft.request.request_id]
            commands.append(Reply(draft.request.request_id, AdminReply(_not_planned())))
        plan = self._plan_queue.due()
        commands += [plan] if plan is not None else []
        for beginning in list(self._beginnings.values()):
            commands += self._advance_beginning(beginning, now)
        for cancelling in list(self._cancellings.values()):
            commands += self._advance_cancelling(cancelling, now)
        commands += self._end_operations(now.wall_ms)
        removals = superfluous_keys(
            self._context, self._requested_ids(), self._transactions.mutations()
        )
        waiting = [r for r in removals if not self._transactions.is_in_flight(r)]
        return [*commands, *(self._transactions.begin(removal) for removal in waiting)]

    def wake_at_ms(self) -> int | None:
        deadlines = [draft.deadline_ms for draft in self._drafts.values()]
        deadlines += [beginning.deadline_ms for beginning in self._beginnings.values()]
        deadlines += [cancelling.deadline_ms for cancelling in self._cancellings.values()]
        return min(deadlines, default=None)

    # Beginning.

    def _drafted(self, request: BeginOperation | CancelOperation, now: Now) -> None:
        deadline_ms = now.monotonic_ms + DEFAULT_TIMEOUT_MS
        self._drafts[request.request_id] = _Draft(request, deadline_ms, now.wall_ms)

    def _beginning(
        self, draft: _Draft, request: BeginOperation, planned: OperationPlan
    ) -> _Beginning:
        operation_id, moves = request.operation_id, planned.summary.moves
        plan = plan_writing(self._context.operations, operation_id, moves)
        entry = OperationEntry(
            kind=kind_of(request.wanted),
            request=canonical_text(request.wanted),
            requested_by=request.caller.name,
            requested_from=request.caller.address,
            requested_at_ms=draft.wall_ms,
            trace_id=request.trace_id,
            state=OperationState.RUNNING,
            reason="",
            ended_at_ms=0,
            moves=len(moves),
            chunks=len(plan.chunks),
            replicas_to_add=planned.summary.replicas_added,
            marks_before=planned.marks_before,
            factors_before=planned.factors_before,
        )
        commit = OperationCommit(operation_id, entry, marks=planned.marks, topics=planned.topics)
        layout, deadline_ms = self._context.layout_version, draft.deadline_ms
        return _Beginning(request, operation_id, planned, layout, deadline_ms, plan, commit)

    def _known(self, request: BeginOperation) -> OperationEntry | None:
        """Returns the operation of the request's id that exists or is being written; None: neither.

        Raises OPERATION_ID_IN_USE if it is another one, or another one with this id is being
        planned.
        """
        operation_id = request.operation_id
        held = self._context.operations.held.get(operation_id)
        entries = [held.entry] if held is not None else []
        entries += [
            b.commit.entry for b in self._beginnings.values() if b.operation_id == operation_id
        ]
        drafts = [d.request for d in self._drafts.values()]
        if any(
            isinstance(other, BeginOperation)
            and not other.dry_run
            and other.operation_id == operation_id
            and fingerprint_of(other.wanted) != fingerprint_of(request.wanted)
            for other in drafts
        ):
            raise _in_use(operation_id)
        for entry in entries:
            if (entry.kind, entry.request) != fingerprint_of(request.wanted):
                raise TidelogError(
                    ErrorCode.OPERATION_ID_IN_USE,
                    f"operation {request.operation_id} is another one: {entry.kind.value} "
                    f"{entry.request}; choose another id",
                )
        created = created_by(self._context, operation_id)
        if created is not None:
            raise TidelogError(
                ErrorCode.OPERATION_ID_IN_USE,
                f"operation {operation_id} is another one, which creates topic {created}; choose "
                "another id",
            )
        return entries[0] if entries else None

    def _reply_known(self, request: BeginOperation, now: Now) -> list[Command]:
        if request.operation_id in self._context.operations.held:
            view = view_of(self._context, request.operation_id, now)
            answer = OperationAnswer(view)
            return [Reply(request.request_id, AdminReply(None, answer=answer))]
        # It is being written: a repeated request waits for the same one.
        beginning = next(
            b for b in self._beginnings.values() if b.operation_id == request.operation_id
        )
        self._beginnings[request.request_id] = replace(beginning, request=request)
        return []

    def _check_not_being_written(self, planned: OperationPlan) -> None:
        """Raises PARTITION_BUSY if an operation being written moves one of the partitions."""
        names = {move.name for move in planned.summary.moves}
        for other in self._beginnings.values():
            shared = names.intersection(move.name for move in other.planned.summary.moves)
            if shared:
                raise TidelogError(
                    ErrorCode.PARTITION_BUSY,
                    f"{min(shared)} is being moved by operation {other.operation_id}, which was "
                    "just requested; wait for its end, or cancel it first",
                )

    def _advance_beginning(self, beginning: _Beginning, now: Now) -> list[Command]:
        operation_id = beginning.operation_id
        held = self._context.operations.held.get(operation_id)
        if held is not None:
            entry = beginning.commit.entry
            if (held.entry.kind, held.entry.request) != (entry.kind, entry.request):
                return self._reject(beginning, _in_use(operation_id))
            answer = OperationAnswer(view_of(self._context, operation_id, now))
            if not beginning.plan.missing(self._context.operations):
                # Otherwise an earlier attempt, whose answer was lost, has begun with its own plan.
                plan = beginning.planned.summary._replace(moves=())
                answer = answer._replace(plan=plan)
            return self._reply(beginning, AdminReply(None, answer=answer))
        if now.monotonic_ms >= beginning.deadline_ms:
            return self._reject(beginning, outcome_unknown(f"operation {operation_id} was started"))
        return self._write(beginning)

    def _write(self, beginning: _Beginning) -> list[Command]:
        """Begins the missing writes: chunks first, then the commit."""
        operations, operation_id = self._context.operations, beginning.operation_id
        unreadable = unreadable_key(self._context, operation_id)
        if unreadable is not None:
            return self._reject(beginning, _unreadable(operation_id, unreadable))
        missing = beginning.plan.missing(operations)
        waiting = [chunk for chunk in missing if not self._transactions.is_in_flight(chunk)]
        room = MAX_CHUNKS_IN_FLIGHT - (len(missing) - len(waiting))
        if missing:
            return [self._transactions.begin(chunk) for chunk in waiting[: max(room, 0)]]
        revision = plan_revision(operations, operation_id)
        commit = replace(beginning.commit, plan_revision=revision)
        if self._transactions.is_in_flight(commit):
            return []
        if not self._may_commit(beginning):
            return self._reject(beginning, _changed_while_written())
        beginning.commit_begun = True
        return [self._transactions.begin(commit)]

    def _may_commit(self, beginning: _Beginning) -> bool:
        """Whether the plan is still valid.

        Once the commit is on its way, only what its transaction compares is checked.
        """
        layout = self._context.layout_version
        if layout == beginning.layout:
            return True
        beginning.layout = layout
        if beginning.commit_begun:
            return is_guarded(self._context, beginning.planned)
        return is_current(self._context, beginning.planned)

    def _reject(self, beginning: _Beginning, error: TidelogError) -> list[Command]:
        return self._reply(beginning, AdminReply(error))

    def _reply(self, beginning: _Beginning, reply: AdminReply) -> list[Command]:
        del self._beginnings[beginning.request.request_id]
        return [Reply(beginning.request.request_id, reply)]

    # Cancelling.

    def _check_cancellable(self, operation_id: str) -> None:
        """Repeating the request is valid."""
        held = self._context.operations.held.get(operation_id)
        if held is None:
            raise unknown_operation(operation_id)
        if held.entry.state in (OperationState.DONE, OperationState.FAILED):
            raise ended(operation_id, held.entry.state)

    def _advance_cancelling(self, cancelling: _Cancelling, now: Now) -> list[Command]:
        request = cancelling.request
        try:
            self._check_cancellable(request.operation_id)
        except TidelogError as error:
            return self._end_cancelling(request, AdminReply(error))
        held = self._context.operations.held[request.operation_id]
        if held.entry.state is not OperationState.RUNNING:
            answer = OperationAnswer(view_of(self._context, request.operation_id, now))
            return self._end_cancelling(request, AdminReply(None, answer=answer))
        if now.monotonic_ms >= cancelling.deadline_ms:
            unknown = outcome_unknown(f"operation {request.operation_id} was cancelled")
            return self._end_cancelling(request, AdminReply(unknown))
        who = request.caller.name or request.caller.address or "somebody"
        entry = replace(held.entry, state=OperationState.CANCELLING, reason=f"cancelled by {who}")
        if self._updates(request.operation_id):
            return []
        update = OperationUpdate(
            request.operation_id,
            held.revision,
            entry,
            request.caller,
            tuple(marks_to_roll_back(self._context, request.operation_id, entry)),
            tuple(factors_to_roll_back(self._context, entry)),
        )
        return [self._transactions.begin(update)]

    def _end_cancelling(self, request: CancelOperation, reply: AdminReply) -> list[Command]:
        del self._cancellings[request.request_id]
        return [Reply(request.request_id, reply)]

    # Stored operations.

    def _end_operations(self, wall_ms: int) -> list[Command]:
        commands: list[Command] = []
        operations = self._context.operations
        for operation_id, entry in operations.over(self._transactions.writes):
            if self._updates(operation_id):
                continue
            on_brokers = on_removed(self._context, operation_id, entry)
            is_done = entry.state is OperationState.DONE
            if is_done and (on_brokers.leaving or not self._elections_done(operation_id)):
                continue  # Other operations still move them off; if those are cancelled, they stay.
            judged = _failed_if_not_empty(entry, on_brokers) if is_done else entry
            revision = operations.held[operation_id].revision
            over = replace(judged, ended_at_ms=wall_ms)
            update = OperationUpdate(operation_id, revision, over)
            commands.append(self._transactions.begin(update))
        return commands

    def _updates(self, operation_id: str) -> bool:
        return any(
            isinstance(mutation, OperationUpdate) and mutation.operation_id == operation_id
            for mutation in self._transactions.mutations()
        )

    def _requested_ids(self) -> set[str]:
        """Operations that have not begun yet."""
        drafts = (draft.request.operation_id for draft in self._drafts.values())
        return {*drafts, *(beginning.operation_id for beginning in self._beginnings.values())}


def _failed_if_not_empty(entry: OperationEntry, on_brokers: OnRemoved) -> OperationEntry:
    """Marks a removal as failed if its brokers still hold replicas.

    The replicas came there as it began, or another operation has kept them. An administrator who
    reads that the removal is done stops these brokers for good.
    """
    left = on_brokers.left
    if not left:
        return entry
    reason = (
        f"{len(left)} partitions, such as {left[0]}, are still on its brokers: they were kept by "
        "other operations, or placed there as it started; remove these brokers again, and do not "
        "stop them before"
    )
    return replace(entry, state=OperationState.FAILED, reason=reason)


def _in_use(operation_id: str) -> TidelogError:
    return TidelogError(
        ErrorCode.OPERATION_ID_IN_USE,
        f"operation id {operation_id} belongs to another operation that was requested at the same "
        "time; choose another id",
    )


def _unreadable(operation_id: str, key: str) -> TidelogError:
    return TidelogError(
        ErrorCode.OPERATION_ID_IN_USE,
        f"the stored data of operation id {operation_id} cannot be read; repair the key {key}, or "
        "choose another id",
    )


def _changed_while_written() -> TidelogError:
    return TidelogError(
        ErrorCode.REVISION_CONFLICT,
        "a partition that the operation moves, a topic, or the mark of a broker changed while the "
        "operation was being written; nothing was started; try again",
    )


def _not_planned() -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the plan was not made within {DEFAULT_TIMEOUT_MS // 1_000} s, because others were being "
        "made; nothing was started; try again",
        outcome_unknown=False,
    )


def _cancellation_plan(context: Context, operation_id: str) -> PlanSummary:
    """The reverse of the active moves, and what else a cancellation rolls back."""
    back: list[OperationMove] = []
    for move in context.operations.moves_of(operation_id):
        state = context.state_to_stay(move.name)
        if state is not None and state.moving and state.moving.operation == operation_id:
            moving = state.moving
            back.append(move._replace(original=moving.target, target=moving.original))
    entry = context.operations.held[operation_id].entry
    marks = marks_to_roll_back(context, operation_id, entry)
    topics = factors_to_roll_back(context, entry)
    return with_rollback(summary_of(sorted(back), assignment_of(context)), marks, topics)
