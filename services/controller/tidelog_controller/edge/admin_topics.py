"""AdminService, for topics.

Turns requests into events of the controller, and its replies into responses.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.errors import TidelogError
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from tidelog_controller.edge.admin_calls import NO_ID, AdminCalls, error_of, recovery_choices
from tidelog_controller.edge.caller_context import Context, caller_of, trace_of
from tidelog_controller.state.admin_answers import ConfigAnswer, PartitionsAnswer
from tidelog_controller.state.admin_requests import (
    AddPartitions,
    AlterTopicConfig,
    Assignment,
    RemovePartitions,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import (
    CreateTopic,
    DeleteTopic,
    RecoverPartitions,
)
from tidelog_runtime.turns import QUICK_ITEMS_PER_TURN, add_in_turns, in_turns


class TopicCalls(AdminCalls):
    async def CreateTopic(  # noqa: N802 - the generated name
        self, request: pb.CreateTopicRequest, context: Context
    ) -> pb.CreateTopicResponse:
        reply = await self._submit(
            CreateTopic(
                NO_ID,
                request.topic,
                request.partitions,
                request.replication_factor,
                dict(request.config),
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                await _assignment(request.assignment),
                request.operation_id,
                caller_of(context),
            ),
            context,
        )
        plan = _partitions_answer(reply)
        response = pb.CreateTopicResponse(
            error=error_of(reply), topic_id=reply.topic_id, pending_brokers=reply.pending_brokers
        )
        await _add_assignment(response, plan)
        return response

    async def DeleteTopic(  # noqa: N802 - the generated name
        self, request: pb.DeleteTopicRequest, context: Context
    ) -> pb.DeleteTopicResponse:
        reply = await self._submit(
            DeleteTopic(
                NO_ID,
                request.topic,
                request.topic_id,
                request.timeout_ms,
                trace_of(context),
                request.dry_run,
                caller_of(context),
                request.expected_revision,
            ),
            context,
        )
        plan = _partitions_answer(reply)
        return pb.DeleteTopicResponse(
            error=error_of(reply),
            pending_brokers=reply.pending_brokers,
            partitions=plan.partitions,
            brokers=plan.brokers,
        )

    async def AlterTopicConfig(  # noqa: N802 - the generated name
        self, request: pb.AlterTopicConfigRequest, context: Context
    ) -> pb.AlterTopicConfigResponse:
        reply = await self._submit(
            AlterTopicConfig(
                NO_ID,
                request.topic,
                request.topic_id,
                dict(request.set),
                tuple(request.unset),
                request.expected_revision,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                caller_of(context),
            ),
            context,
        )
        answer = reply.answer if isinstance(reply.answer, ConfigAnswer) else ConfigAnswer()
        return pb.AlterTopicConfigResponse(
            error=error_of(reply),
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
                NO_ID,
                request.topic,
                request.topic_id,
                request.partitions,
                await _assignment(request.assignment),
                request.expected_revision,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                caller_of(context),
            ),
            context,
        )
        answer = _partitions_answer(reply)
        response = pb.AddPartitionsResponse(
            error=error_of(reply),
            added=answer.partitions,
            pending_brokers=reply.pending_brokers,
            revision=answer.revision,
        )
        await _add_assignment(response, answer)
        return response

    async def RemovePartitions(  # noqa: N802 - the generated name
        self, request: pb.RemovePartitionsRequest, context: Context
    ) -> pb.RemovePartitionsResponse:
        reply = await self._submit(
            RemovePartitions(
                NO_ID,
                request.topic,
                request.topic_id,
                request.partitions,
                request.confirm_topic,
                request.expected_revision,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                caller_of(context),
            ),
            context,
        )
        answer = _partitions_answer(reply)
        return pb.RemovePartitionsResponse(
            error=error_of(reply),
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
                NO_ID,
                request.topic,
                tuple(request.partitions),
                request.from_live_replicas,
                request.timeout_ms,
                trace_of(context),
                caller_of(context),
                await recovery_choices(request.choices),
            ),
            context,
        )
        return pb.RecoverPartitionsResponse(
            error=error_of(reply),
            partitions=await in_turns(_recovered, reply.partitions),
        )


def _recovered(result: tuple[int, TidelogError | None]) -> pb.RecoverPartitionResult:
    partition, error = result
    return pb.RecoverPartitionResult(
        partition=partition, error=error_to_wire(error) if error else None
    )


async def _assignment(wire: Iterable[pb.ReplicaAssignment]) -> Assignment:
    return tuple(await in_turns(lambda each: tuple(each.replicas), wire, QUICK_ITEMS_PER_TURN))


def _partitions_answer(reply: AdminReply) -> PartitionsAnswer:
    return reply.answer if isinstance(reply.answer, PartitionsAnswer) else PartitionsAnswer()


async def _add_assignment(
    response: pb.CreateTopicResponse | pb.AddPartitionsResponse, answer: PartitionsAnswer
) -> None:
    await add_in_turns(
        response.assignment,
        lambda replicas: pb.ReplicaAssignment(replicas=replicas),
        answer.assignment,
        QUICK_ITEMS_PER_TURN,
    )
