"""AdminService: requests become events of the controller, and its replies answers."""

from __future__ import annotations

from typing import Any, Protocol

import grpc
import grpc.aio

from tidelog.rpc.trace_context import trace_id_of
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from tidelog_controller.edge.admin_not_built import AdminNotBuilt
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import (
    AdminRequest,
    CreateTopic,
    DeleteTopic,
    RecoverPartitions,
)

MAX_WAITING_REQUESTS = 1_000

# Given by the event loop.
_NO_ID = 0

Context = grpc.aio.ServicerContext[Any, Any]


class Admin(Protocol):
    async def submit(self, request: AdminRequest) -> AdminReply: ...


class AdminServicer(AdminNotBuilt):
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._waiting = 0

    async def CreateTopic(  # noqa: N802 - the generated name
        self, request: pb.CreateTopicRequest, context: Context
    ) -> pb.CreateTopicResponse:
        reply = await self._submit(
            CreateTopic(
                _NO_ID,
                request.topic,
                request.partitions,
                request.replication_factor,
                dict(request.config),
                request.dry_run,
                request.timeout_ms,
                _trace_id(context),
            ),
            context,
        )
        return pb.CreateTopicResponse(
            error=error_to_wire(reply.error) if reply.error else None,
            topic_id=reply.topic_id,
            pending_brokers=reply.pending_brokers,
        )

    async def DeleteTopic(  # noqa: N802 - the generated name
        self, request: pb.DeleteTopicRequest, context: Context
    ) -> pb.DeleteTopicResponse:
        reply = await self._submit(
            DeleteTopic(
                _NO_ID, request.topic, request.topic_id, request.timeout_ms, _trace_id(context)
            ),
            context,
        )
        return pb.DeleteTopicResponse(
            error=error_to_wire(reply.error) if reply.error else None,
            pending_brokers=reply.pending_brokers,
        )

    async def RecoverPartitions(  # noqa: N802 - the generated name
        self, request: pb.RecoverPartitionsRequest, context: Context
    ) -> pb.RecoverPartitionsResponse:
        reply = await self._submit(
            RecoverPartitions(
                _NO_ID,
                request.topic,
                tuple(request.partitions),
                request.from_live_replicas,
                request.timeout_ms,
                _trace_id(context),
            ),
            context,
        )
        return pb.RecoverPartitionsResponse(
            error=error_to_wire(reply.error) if reply.error else None,
            partitions=[
                pb.RecoverPartitionResult(
                    partition=partition, error=error_to_wire(error) if error else None
                )
                for partition, error in reply.partitions
            ],
        )

    async def _submit(self, request: AdminRequest, context: Context) -> AdminReply:
        if self._waiting >= MAX_WAITING_REQUESTS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._waiting} requests are waiting already; try again when some are done",
            )
        self._waiting += 1
        try:
            return await self._admin.submit(request)
        finally:
            self._waiting -= 1


def _trace_id(context: Context) -> str:
    return trace_id_of(context.invocation_metadata())
