"""Requests about the cluster's feature level (docs/adr/0033)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.admin_messages import ProcessVersion
from tidelog.errors import ErrorCode, TidelogError
from tidelog.phrases import plural
from tidelog.version import installed_version
from tidelog_controller.requests.request_checks import (
    DEFAULT_TIMEOUT_MS,
    check_revision,
    outcome_unknown,
)
from tidelog_controller.state.admin_answers import LevelAnswer
from tidelog_controller.state.admin_requests import DescribeFeatureLevel, RaiseFeatureLevel
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.mutations import LevelChange
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.metadata.schema import ClusterEntry

# Processes that an error names; the others are counted.
MAX_NAMED = 10


def registered_processes(context: Context) -> Iterator[ProcessVersion]:
    """Yields the registered brokers and controllers, each ordered by id."""
    for broker_id, broker in sorted(context.brokers.items()):
        of = broker.registration
        yield ProcessVersion("broker", broker_id, of.address, of.version, *of.levels)
    for controller_id, process in sorted(context.levels.controllers.items()):
        yield ProcessVersion(
            "controller", controller_id, process.address, process.version, *process.levels
        )


def raisable_level(context: Context) -> int:
    """Returns the highest level that this controller and all registered processes support."""
    newest = [process.newest_level for process in registered_processes(context)]
    return min((*newest, context.levels.own.newest))


@dataclass(slots=True)
class _Raise:
    request: RaiseFeatureLevel
    before: int
    deadline_ms: int


class LevelAdmin:
    def __init__(self, context: Context, transactions: Transactions) -> None:
        self._context = context
        self._transactions = transactions
        self._raises: dict[int, _Raise] = {}

    def handle(
        self, request: RaiseFeatureLevel | DescribeFeatureLevel, now_ms: int
    ) -> list[Command]:
        """Answers a query, rejects an invalid request, or begins it; `advance` does the rest."""
        level = self._context.levels.level
        if isinstance(request, RaiseFeatureLevel):
            try:
                self._check(request)
            except TidelogError as error:
                return [Reply(request.request_id, AdminReply(error))]
            if not request.dry_run:
                deadline_ms = now_ms + DEFAULT_TIMEOUT_MS
                self._raises[request.request_id] = _Raise(request, level, deadline_ms)
                return []
        return [Reply(request.request_id, AdminReply(None, answer=self._answer(level)))]

    def advance(self, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        for raised in list(self._raises.values()):
            commands += self._advance(raised, now_ms)
        return commands

    def wake_at_ms(self) -> int | None:
        return min((raised.deadline_ms for raised in self._raises.values()), default=None)

    def _advance(self, raised: _Raise, now_ms: int) -> list[Command]:
        request, levels = raised.request, self._context.levels
        if levels.level == request.level:
            return self._reply(request, AdminReply(None, answer=self._answer(raised.before)))
        if now_ms >= raised.deadline_ms:
            return self._reply(request, AdminReply(outcome_unknown("the level is raised")))
        # A failed transaction shows a later registration before the watch delivers it (rule
        # `registered-process-supports-level`).
        if max(levels.revision, levels.registered_revision) > self._context.revision:
            return []
        entry = levels.cluster or ClusterEntry("")
        change = LevelChange(
            entry,
            request.level,
            levels.revision,
            levels.registered_revision,
            request.caller,
            request.trace_id,
        )
        if self._transactions.is_in_flight(change):
            return []
        try:
            # A process may have registered meanwhile, or another request raised the level.
            self._check(request)
        except TidelogError as rejection:
            return self._reply(request, AdminReply(rejection))
        return [self._transactions.begin(change)]

    def _check(self, request: RaiseFeatureLevel) -> None:
        """Raises the `TidelogError` of the reply. A level that is in force is accepted, so that a
        request may be repeated."""
        levels = self._context.levels
        if request.level == levels.level:
            return
        if request.level < levels.level:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"the cluster is at feature level {levels.level}, which is never lowered to "
                f"{request.level}: files and metadata may have the newer form already",
            )
        if not levels.own.supports(request.level):
            raise TidelogError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the active controller runs release {installed_version()}, which supports "
                f"{levels.own} and not {request.level}; upgrade all processes first",
            )
        if levels.cluster is None:
            raise TidelogError(
                ErrorCode.INTERNAL,
                f"the key {self._context.keys.cluster} of the cluster is missing; restore it first",
            )
        self._check_processes(request.level)
        check_revision("the feature level", levels.revision, request.expected_revision)

    def _check_processes(self, level: int) -> None:
        blocking = [p for p in registered_processes(self._context) if not p.supports(level)]
        if not blocking:
            return
        named = [f"{p} ({p.version or 'an earlier release'})" for p in blocking[:MAX_NAMED]]
        rest = len(blocking) - MAX_NAMED
        more = f" and {rest:,} more" if rest > 0 else ""
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{plural(len(blocking), 'process', 'processes')} would not work at feature level "
            f"{level}: {', '.join(named)}{more}; upgrade or stop these first",
        )

    def _answer(self, before: int) -> LevelAnswer:
        levels = self._context.levels
        return LevelAnswer(
            levels.level,
            before,
            levels.own.newest,
            levels.revision,
            tuple(registered_processes(self._context)),
        )

    def _reply(self, request: RaiseFeatureLevel, reply: AdminReply) -> list[Command]:
        del self._raises[request.request_id]
        return [Reply(request.request_id, reply)]
