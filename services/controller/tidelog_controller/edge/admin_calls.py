"""Common parts of all calls of AdminService: they wait for a reply, and their number is limited."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2, errors_pb2
from tidelog.v1.admin_pb2_grpc import AdminServiceServicer
from tidelog_controller.edge.caller_context import Context
from tidelog_controller.metrics.decision_meter import Admin
from tidelog_controller.state.admin_requests import RecoveryChoice
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import AdminRequest
from tidelog_runtime.turns import QUICK_ITEMS_PER_TURN, in_turns

MAX_WAITING_REQUESTS = 1_000

# The event loop assigns the id.
NO_ID = 0


class AdminCalls(AdminServiceServicer):
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._waiting = 0

    async def _submit(self, request: AdminRequest, context: Context) -> AdminReply:
        if self._waiting >= MAX_WAITING_REQUESTS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._waiting} requests are waiting already; try again later",
            )
        self._waiting += 1
        try:
            return await self._admin.submit(request)
        finally:
            self._waiting -= 1


def error_of(reply: AdminReply) -> errors_pb2.Error | None:
    return error_to_wire(reply.error) if reply.error else None


async def recovery_choices(wire: Iterable[admin_pb2.RecoveryChoice]) -> tuple[RecoveryChoice, ...]:
    return tuple(await in_turns(_recovery_choice, wire, QUICK_ITEMS_PER_TURN))


def _recovery_choice(wire: admin_pb2.RecoveryChoice) -> RecoveryChoice:
    return RecoveryChoice(wire.partition, wire.broker_id, wire.expected_revision)
