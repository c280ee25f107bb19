"""Requests about the throttle of moves."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.requests.request_checks import (
    DEFAULT_TIMEOUT_MS,
    check_revision,
    outcome_unknown,
)
from tidelog_controller.state.admin_answers import ThrottleAnswer
from tidelog_controller.state.admin_requests import DescribeThrottle, SetThrottle
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.mutations import ThrottleChange
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.metadata.schema import MIN_BYTES_PER_SECOND


@dataclass(slots=True)
class _Setting:
    request: SetThrottle
    before: int | None
    deadline_ms: int


class ThrottleAdmin:
    def __init__(self, context: Context, transactions: Transactions) -> None:
        self._context = context
        self._transactions = transactions
        self._settings: dict[int, _Setting] = {}

    def set(self, request: SetThrottle, now_ms: int) -> list[Command]:
        """Rejects an invalid request, or begins it; `advance` does the rest."""
        stands = self._context.throttle
        bound = request.bytes_per_second
        try:
            if bound is not None and bound < MIN_BYTES_PER_SECOND:
                raise TidelogError(
                    ErrorCode.INVALID_REQUEST,
                    f"a limit of {bound} bytes per second is too low to copy a batch in "
                    f"reasonable time; set at least {MIN_BYTES_PER_SECOND}, or none",
                )
            self._check_unchanged(request)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if request.dry_run:
            answer = ThrottleAnswer(bound, stands.bytes_per_second, stands.revision)
            return [Reply(request.request_id, AdminReply(None, answer=answer))]
        self._settings[request.request_id] = _Setting(
            request, stands.bytes_per_second, now_ms + DEFAULT_TIMEOUT_MS
        )
        return []

    def describe(self, request: DescribeThrottle) -> list[Command]:
        stands = self._context.throttle
        answer = ThrottleAnswer(stands.bytes_per_second, None, stands.revision)
        return [Reply(request.request_id, AdminReply(None, answer=answer))]

    def advance(self, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        for setting in list(self._settings.values()):
            commands += self._advance(setting, now_ms)
        return commands

    def wake_at_ms(self) -> int | None:
        return min((setting.deadline_ms for setting in self._settings.values()), default=None)

    def _advance(self, setting: _Setting, now_ms: int) -> list[Command]:
        request, stands = setting.request, self._context.throttle
        bound = request.bytes_per_second
        if stands.bytes_per_second == bound:
            answer = ThrottleAnswer(bound, setting.before, stands.revision)
            return self._reply(request, AdminReply(None, answer=answer))
        if now_ms >= setting.deadline_ms:
            return self._reply(request, AdminReply(outcome_unknown("the throttle is set")))
        change = ThrottleChange(
            bound, stands.revision, stands.bytes_per_second, request.caller, request.trace_id
        )
        if self._transactions.is_in_flight(change):
            return []
        try:
            # Another change may have been made meanwhile.
            self._check_unchanged(request)
        except TidelogError as rejection:
            return self._reply(request, AdminReply(rejection))
        return [self._transactions.begin(change)]

    def _check_unchanged(self, request: SetThrottle) -> None:
        """Checks the expected revision, unless the throttle already has the requested value.

        So a request may be repeated.
        """
        stands = self._context.throttle
        if request.bytes_per_second != stands.bytes_per_second:
            check_revision("the throttle", stands.revision, request.expected_revision)

    def _reply(self, request: SetThrottle, reply: AdminReply) -> list[Command]:
        del self._settings[request.request_id]
        return [Reply(request.request_id, reply)]
