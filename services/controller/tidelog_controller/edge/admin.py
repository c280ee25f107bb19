"""AdminService: requests become events of the controller, and its replies answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import grpc
import grpc.aio

from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import errors_pb2
from tidelog_controller.edge.admin_not_built import AdminNotBuilt
from tidelog_controller.edge.asking import Context, asker_of, trace_of
from tidelog_controller.state.admin_answers import ConfigAnswer, PartitionsAnswer
from tidelog_controller.state.admin_requests import (
    AddPartitions,
    AlterTopicConfig,
    Assignment,
    RemovePartitions,
)
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
                trace_of(context),
                _assignment(request.assignment),
                request.operation_id,
                asker_of(context),
            ),
            context,
        )
        plan = _partitions_answer(reply)
        return pb.CreateTopicResponse(
            error=_error(reply),
            topic_id=reply.topic_id,
            pending_brokers=reply.pending_brokers,
            assignment=_assignment_to_wire(plan),
        )

    async def DeleteTopic(  # noqa: N802 - the generated name
        self, request: pb.DeleteTopicRequest, context: Context
    ) -> pb.DeleteTopicResponse:
        reply = await self._submit(
            DeleteTopic(
                _NO_ID,
                request.topic,
                request.topic_id,
                request.timeout_ms,
                trace_of(context),
                request.dry_run,
                asker_of(context),
            ),
            context,
        )
        plan = _partitions_answer(reply)
        return pb.DeleteTopicResponse(
            error=_error(reply),
            pending_brokers=reply.pending_brokers,
            partitions=plan.partitions,
            brokers=plan.brokers,
        )

    async def AlterTopicConfig(  # noqa: N802 - the generated name
        self, request: pb.AlterTopicConfigRequest, context: Context
    ) -> pb.AlterTopicConfigResponse:
        reply = await self._submit(
            AlterTopicConfig(
                _NO_ID,
                request.topic,
                request.topic_id,
                dict(request.set),
                tuple(request.unset),
                request.expected_revision,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                asker_of(context),
            ),
            context,
        )
        answer = reply.answer if isinstance(reply.answer, ConfigAnswer) else ConfigAnswer()
        return pb.AlterTopicConfigResponse(
            error=_error(reply),
            changes=[
                pb.ConfigChange(key=key, before=before, after=after)
                for key, before, after in answer.changes
            ],
            revision=answer.revision,
            pending_brokers=reply.pending_brokers,
        )

    async def AddPartitions(  # noqa: N802 - the generated name
        self, request: pb.AddPartitionsRequest, context: Context
    ) -> pb.AddPartitionsResponse:
        reply = await self._submit(
            AddPartitions(
                _NO_ID,
                request.topic,
                request.topic_id,
                request.partitions,
                _assignment(request.assignment),
                request.expected_revision,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                asker_of(context),
            ),
            context,
        )
        answer = _partitions_answer(reply)
        return pb.AddPartitionsResponse(
            error=_error(reply),
            added=answer.partitions,
            pending_brokers=reply.pending_brokers,
            revision=answer.revision,
            assignment=_assignment_to_wire(answer),
        )

    async def RemovePartitions(  # noqa: N802 - the generated name
        self, request: pb.RemovePartitionsRequest, context: Context
    ) -> pb.RemovePartitionsResponse:
        reply = await self._submit(
            RemovePartitions(
                _NO_ID,
                request.topic,
                request.topic_id,
                request.partitions,
                request.confirm_topic,
                request.expected_revision,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                asker_of(context),
            ),
            context,
        )
        answer = _partitions_answer(reply)
        return pb.RemovePartitionsResponse(
            error=_error(reply),
            removed=answer.partitions,
            pending_brokers=reply.pending_brokers,
            revision=answer.revision,
            brokers=answer.brokers,
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
                trace_of(context),
                asker_of(context),
            ),
            context,
        )
        return pb.RecoverPartitionsResponse(
            error=_error(reply),
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


def _error(reply: AdminReply) -> errors_pb2.Error | None:
    return error_to_wire(reply.error) if reply.error else None


def _assignment(wire: Iterable[pb.ReplicaAssignment]) -> Assignment:
    return tuple(tuple(partition.replicas) for partition in wire)


def _partitions_answer(reply: AdminReply) -> PartitionsAnswer:
    return reply.answer if isinstance(reply.answer, PartitionsAnswer) else PartitionsAnswer()


def _assignment_to_wire(answer: PartitionsAnswer) -> list[pb.ReplicaAssignment]:
    return [pb.ReplicaAssignment(replicas=replicas) for replicas in answer.assignment]
