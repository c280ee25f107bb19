"""Requests to describe an operation.

The leaders of its moves are asked first how much has been copied. The answer waits for them only
briefly, and says how many moves are not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.errors import TidelogError
from tidelog.model import NO_LEADER
from tidelog_controller.control.move_progress_probe import Measurement, MoveProgressProbe
from tidelog_controller.requests.operation_plans import unknown_operation
from tidelog_controller.requests.operation_views import Now, describe_operation, position_of
from tidelog_controller.state.admin_requests import DescribeOperation
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context

# The time that an answer waits for leaders.
MAX_MEASURING_MS = 1_000


@dataclass(slots=True)
class _Pending:
    request: DescribeOperation
    deadline_ms: int


class DescribeOperationHandler:
    def __init__(self, context: Context, move_progress: MoveProgressProbe) -> None:
        self._context = context
        self._move_progress = move_progress
        self._pending: dict[int, _Pending] = {}

    def handle(self, request: DescribeOperation, now_ms: int) -> list[Command]:
        """Rejects an invalid request, or begins it; `advance` does the rest."""
        try:
            if request.operation_id not in self._context.operations.held:
                raise unknown_operation(request.operation_id)
            position_of(request.page_token)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        self._move_progress.request(self._missing_measurements(request.operation_id, now_ms))
        self._pending[request.request_id] = _Pending(request, now_ms + MAX_MEASURING_MS)
        return []

    def advance(self, now: Now) -> list[Command]:
        if not self._pending:
            return []
        commands: list[Command] = []
        unmeasured = set(self._move_progress.pending())
        for pending in list(self._pending.values()):
            request = pending.request
            work = self._context.operations.work_of(request.operation_id)
            waits = work is not None and any(work.bytes.copies(p) for p in unmeasured)
            if waits and now.monotonic_ms < pending.deadline_ms:
                continue
            del self._pending[request.request_id]
            commands.append(Reply(request.request_id, self._described(request, now)))
        return commands

    def wake_at_ms(self) -> int | None:
        return min((pending.deadline_ms for pending in self._pending.values()), default=None)

    def _described(self, request: DescribeOperation, now: Now) -> AdminReply:
        try:
            return AdminReply(None, answer=describe_operation(self._context, request, now))
        except TidelogError as error:
            return AdminReply(error)

    def _missing_measurements(self, operation_id: str, now_ms: int) -> Iterator[Measurement]:
        work = self._context.operations.work_of(operation_id)
        if work is None:
            return
        for partition in work.bytes.stale(work.active, now_ms):
            state = self._context.state_to_stay(partition)
            if state is not None and state.leader != NO_LEADER:
                yield Measurement(partition, state.topic_id, state.leader)
