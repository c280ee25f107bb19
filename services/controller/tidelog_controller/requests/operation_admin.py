"""Requests that begin and cancel operations, and what operations need besides their moves: the
writing of their plans, their ends, and the removal of what nobody looks for any more.

A plan's chunks are written first, and then the operation's key, which is the commit point:
chunks without one are orphans.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.policies.operation_ids import check_operation_id
from tidelog_controller.requests.operation_plans import (
    Planned,
    assignment_of,
    check_operation_revision,
    ended,
    plan_operation,
    summary_of,
    unknown_operation,
)
from tidelog_controller.requests.operation_views import Now, view_of
from tidelog_controller.requests.taking_back import (
    factors_taken_back,
    marking,
    marks_taken_back,
)
from tidelog_controller.requests.topic_checks import DEFAULT_TIMEOUT_MS, outcome_unknown
from tidelog_controller.state.admin_answers import OperationAnswer, PlanSummary
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    BeginOperation,
    CancelOperation,
    OperationWanted,
    OtherFactor,
    Reassignment,
    Rebalancing,
    RemovedBrokers,
    Reversal,
)
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.known import Topic
from tidelog_controller.state.purposes import (
    KeysRemoval,
    OperationCommit,
    OperationUpdate,
    PlanChunkWrite,
)
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.identifiers import new_id
from tidelog_runtime.metadata.operations import (
    MOVES_PER_CHUNK,
    OperationEntry,
    OperationKind,
    OperationMove,
    OperationState,
)

MAX_CHUNKS_IN_FLIGHT = 4
# Of a transaction's changes; an operation's chunks and its key fit into one.
MAX_KEYS_REMOVED = 110

_KINDS: dict[type, OperationKind] = {
    Reassignment: OperationKind.REASSIGNMENT,
    Rebalancing: OperationKind.REBALANCE,
    AddedBrokers: OperationKind.BROKERS_ADD,
    RemovedBrokers: OperationKind.BROKERS_REMOVE,
    OtherFactor: OperationKind.SET_REPLICATION_FACTOR,
    Reversal: OperationKind.REVERSAL,
}


@dataclass(slots=True)
class _Beginning:
    """`chunks`: those of its plan that the store may lack. `commit`: once all are written."""

    request: BeginOperation
    operation_id: str
    planned: Planned
    deadline_ms: int
    chunks: dict[int, PlanChunkWrite]
    commit: OperationCommit
    commit_begun: bool = False


@dataclass(slots=True)
class _Cancelling:
    request: CancelOperation
    deadline_ms: int


class OperationAdmin:
    def __init__(self, context: Context, transactions: Transactions, rng: random.Random) -> None:
        self._context = context
        self._transactions = transactions
        self._rng = rng
        self._beginnings: dict[int, _Beginning] = {}
        self._cancellings: dict[int, _Cancelling] = {}

    def begin(self, request: BeginOperation, now: Now) -> list[Command]:
        """Refuses what cannot be, or begins; `advance` does the rest."""
        try:
            operation_id = request.operation_id
            if operation_id:
                check_operation_id(operation_id)
                known = self._known(request)
                if known is not None and not request.dry_run:
                    return self._reply_known(request, now)
            planned = plan_operation(self._context, request.wanted)
            self._check_not_being_planned(planned, operation_id)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if request.dry_run:
            answer = OperationAnswer(None, planned.summary)
            return [Reply(request.request_id, AdminReply(None, answer=answer))]
        operation_id = operation_id or new_id(self._rng)
        self._beginnings[request.request_id] = _beginning(
            request, operation_id, planned, now.monotonic_ms + DEFAULT_TIMEOUT_MS, now.wall_ms
        )
        return []

    def cancel(self, request: CancelOperation, now_ms: int) -> list[Command]:
        try:
            check_operation_revision(self._context, request.operation_id, request.expected_revision)
            self._check_cancellable(request.operation_id)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if request.dry_run:
            answer = OperationAnswer(None, self._going_back(request.operation_id))
            return [Reply(request.request_id, AdminReply(None, answer=answer))]
        deadline_ms = now_ms + DEFAULT_TIMEOUT_MS
        self._cancellings[request.request_id] = _Cancelling(request, deadline_ms)
        return []

    def advance(self, now: Now) -> list[Command]:
        """What the waiting requests and the standing operations now need."""
        commands: list[Command] = []
        for beginning in list(self._beginnings.values()):
            commands += self._advance_beginning(beginning, now)
        for cancelling in list(self._cancellings.values()):
            commands += self._advance_cancelling(cancelling, now)
        commands += self._end_operations(now.wall_ms)
        commands += self._remove_superfluous()
        return commands

    def wake_at_ms(self) -> int | None:
        deadlines = [beginning.deadline_ms for beginning in self._beginnings.values()]
        deadlines += [cancelling.deadline_ms for cancelling in self._cancellings.values()]
        return min(deadlines, default=None)

    # Beginning.

    def _known(self, request: BeginOperation) -> OperationEntry | None:
        """The operation of the request's id, if it is the same. Raises OPERATION_ID_IN_USE."""
        held = self._context.operations.held.get(request.operation_id)
        entries = [held.entry] if held is not None else []
        entries += [
            b.commit.entry
            for b in self._beginnings.values()
            if b.operation_id == request.operation_id
        ]
        for entry in entries:
            if (entry.kind, entry.request) != (kind_of(request.wanted), text_of(request.wanted)):
                raise TidelogError(
                    ErrorCode.OPERATION_ID_IN_USE,
                    f"operation {request.operation_id} is another one: {entry.kind.value} "
                    f"{entry.request}; choose another id",
                )
        return entries[0] if entries else None

    def _reply_known(self, request: BeginOperation, now: Now) -> list[Command]:
        if request.operation_id in self._context.operations.held:
            view = view_of(self._context, request.operation_id, now)
            answer = OperationAnswer(view)
            return [Reply(request.request_id, AdminReply(None, answer=answer))]
        # It is being written: whoever asks again waits for the same.
        beginning = next(
            b for b in self._beginnings.values() if b.operation_id == request.operation_id
        )
        self._beginnings[request.request_id] = replace(beginning, request=request)
        return []

    def _check_not_being_planned(self, planned: Planned, operation_id: str) -> None:
        """By one that is not written yet."""
        names = {move.name for move in planned.summary.moves}
        for other in self._beginnings.values():
            shared = names.intersection(move.name for move in other.planned.summary.moves)
            if shared and other.operation_id != operation_id:
                raise TidelogError(
                    ErrorCode.PARTITION_BUSY,
                    f"{min(shared)} is being moved by operation {other.operation_id}, which has "
                    "just been asked for; wait for its end, or cancel it first",
                )

    def _advance_beginning(self, beginning: _Beginning, now: Now) -> list[Command]:
        operation_id = beginning.operation_id
        held = self._context.operations.held.get(operation_id)
        if held is not None:
            if held.entry.request != beginning.commit.entry.request:
                return self._refuse(beginning, _in_use(operation_id))
            plan = beginning.planned.summary._replace(moves=())
            answer = OperationAnswer(view_of(self._context, operation_id, now), plan)
            return self._reply(beginning, AdminReply(None, answer=answer))
        if now.monotonic_ms >= beginning.deadline_ms:
            return self._refuse(beginning, outcome_unknown(f"operation {operation_id} has begun"))
        return self._write(beginning)

    def _write(self, beginning: _Beginning) -> list[Command]:
        """What is not on the way yet: chunks, and then the commit."""
        known = self._context.operations.chunks.get(beginning.operation_id, {})
        for number in [n for n, c in beginning.chunks.items() if known.get(n) == c.moves]:
            del beginning.chunks[number]
        waiting = [c for c in beginning.chunks.values() if not self._transactions.is_in_flight(c)]
        room = MAX_CHUNKS_IN_FLIGHT - (len(beginning.chunks) - len(waiting))
        if beginning.chunks:
            return [self._transactions.begin(chunk) for chunk in waiting[: max(room, 0)]]
        if self._transactions.is_in_flight(beginning.commit):
            return []
        if beginning.commit_begun and self._is_overtaken(beginning.commit):
            return self._refuse(beginning, _changed_meanwhile())
        beginning.commit_begun = True
        return [self._transactions.begin(beginning.commit)]

    def _is_overtaken(self, commit: OperationCommit) -> bool:
        """Whether what its transaction compares is no more."""
        topics = self._context.topics
        changed = [t for t, revision, _ in commit.topics if _revision(topics.get(t)) != revision]
        others = [m for m in commit.marks if marking(self._context, m.broker_id, m.marked) != m]
        return bool(changed or others)

    def _refuse(self, beginning: _Beginning, error: TidelogError) -> list[Command]:
        return self._reply(beginning, AdminReply(error))

    def _reply(self, beginning: _Beginning, reply: AdminReply) -> list[Command]:
        del self._beginnings[beginning.request.request_id]
        return [Reply(beginning.request.request_id, reply)]

    # Cancelling.

    def _check_cancellable(self, operation_id: str) -> None:
        """Asking again is no fault."""
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
        who = request.asker.name or request.asker.address or "somebody"
        entry = replace(held.entry, state=OperationState.CANCELLING, reason=f"cancelled by {who}")
        if self._updates(request.operation_id):
            return []
        update = OperationUpdate(
            request.operation_id,
            held.revision,
            entry,
            request.asker,
            tuple(marks_taken_back(self._context, request.operation_id, entry)),
            tuple(factors_taken_back(self._context, entry)),
        )
        if now.monotonic_ms >= cancelling.deadline_ms:
            unknown = outcome_unknown(f"operation {request.operation_id} is cancelled")
            return self._end_cancelling(request, AdminReply(unknown))
        return [self._transactions.begin(update)]

    def _end_cancelling(self, request: CancelOperation, reply: AdminReply) -> list[Command]:
        del self._cancellings[request.request_id]
        return [Reply(request.request_id, reply)]

    def _going_back(self, operation_id: str) -> PlanSummary:
        """The moves that are under way, the other way round."""
        context = self._context
        back: list[OperationMove] = []
        for move in context.operations.moves_of(operation_id):
            state = context.state_to_stay(move.name)
            if state is not None and state.moving and state.moving.operation == operation_id:
                moving = state.moving
                back.append(move._replace(original=moving.target, target=moving.original))
        return summary_of(sorted(back), assignment_of(context))

    # What stands.

    def _end_operations(self, wall_ms: int) -> list[Command]:
        commands: list[Command] = []
        operations = self._context.operations
        for operation_id, entry in operations.over(self._transactions.writes):
            if self._updates(operation_id):
                continue
            revision = operations.held[operation_id].revision
            over = replace(entry, ended_at_ms=wall_ms)
            update = OperationUpdate(operation_id, revision, over)
            commands.append(self._transactions.begin(update))
        return commands

    def _updates(self, operation_id: str) -> bool:
        return any(
            isinstance(purpose, OperationUpdate) and purpose.operation_id == operation_id
            for purpose in self._transactions.purposes()
        )

    def _remove_superfluous(self) -> Iterable[Command]:
        """The oldest of those that have ended, and what a plan that was not begun left."""
        keys, operations = self._context.keys, self._context.operations
        removals: list[KeysRemoval] = []
        for operation_id in operations.superfluous():
            key = (keys.operation(operation_id), operations.held[operation_id].revision)
            removals.append(KeysRemoval((key,), self._chunk_keys(operation_id)))
        begun = {beginning.operation_id for beginning in self._beginnings.values()}
        orphans = (i for i in operations.orphans() if i not in begun)
        removals += [KeysRemoval((), self._chunk_keys(operation_id)) for operation_id in orphans]
        waiting = [r for r in removals if not self._transactions.is_in_flight(r)]
        return [self._transactions.begin(removal) for removal in waiting]

    def _chunk_keys(self, operation_id: str) -> tuple[str, ...]:
        keys, chunks = self._context.keys, self._context.operations.chunks.get(operation_id, {})
        numbers = sorted(chunks)[:MAX_KEYS_REMOVED]
        return tuple(keys.operation_plan(operation_id, number) for number in numbers)


def _revision(held: Topic | None) -> int:
    return held.revision if held is not None else 0


def kind_of(wanted: OperationWanted) -> OperationKind:
    return _KINDS[type(wanted)]


def text_of(wanted: OperationWanted) -> str:
    """What was asked, as JSON in one form. Moves by hand, which may be many, by their digest."""
    match wanted:
        case Reassignment(moves):
            text = json.dumps([list(move) for move in sorted(moves)])
            digest = hashlib.sha256(text.encode()).hexdigest()
            return json.dumps({"moves": len(moves), "sha256": digest})
        case Rebalancing():
            return "{}"
        case AddedBrokers(broker_ids) | RemovedBrokers(broker_ids):
            return json.dumps({"broker_ids": sorted(set(broker_ids))})
        case OtherFactor(topics, factor):
            return json.dumps({"replication_factor": factor, "topics": sorted(set(topics))})
        case Reversal(operation_id):
            return json.dumps({"reversed_operation_id": operation_id})


def _beginning(
    request: BeginOperation, operation_id: str, planned: Planned, deadline_ms: int, wall_ms: int
) -> _Beginning:
    moves = planned.summary.moves
    starts = range(0, len(moves), MOVES_PER_CHUNK)
    chunks = {
        number: PlanChunkWrite(operation_id, number, moves[start : start + MOVES_PER_CHUNK])
        for number, start in enumerate(starts)
    }
    entry = OperationEntry(
        kind=kind_of(request.wanted),
        request=text_of(request.wanted),
        requested_by=request.asker.name,
        requested_from=request.asker.address,
        requested_at_ms=wall_ms,
        trace_id=request.trace_id,
        state=OperationState.RUNNING,
        reason="",
        ended_at_ms=0,
        moves=len(moves),
        chunks=len(chunks),
        replicas_to_add=planned.summary.replicas_added,
        marks_before=planned.marks_before,
        factors_before=planned.factors_before,
    )
    commit = OperationCommit(operation_id, entry, planned.marks, planned.topics)
    return _Beginning(request, operation_id, planned, deadline_ms, chunks, commit)


def _in_use(operation_id: str) -> TidelogError:
    return TidelogError(
        ErrorCode.OPERATION_ID_IN_USE,
        f"operation {operation_id} is another one that was asked for at the same time; choose "
        "another id",
    )


def _changed_meanwhile() -> TidelogError:
    return TidelogError(
        ErrorCode.REVISION_CONFLICT,
        "somebody changed a topic or the mark of a broker while the operation was being written, "
        "and nothing was begun; ask again",
    )
