"""AdminService, for leaders and restarts.

Turns requests into events of the controller, and its replies into responses.
"""

from __future__ import annotations

from tidelog.model import TopicPartition
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from tidelog_controller.edge.admin_calls import NO_ID, AdminCalls, error_of
from tidelog_controller.edge.caller_context import Context, caller_of, trace_of
from tidelog_controller.policies.restart_check import Effect
from tidelog_controller.state.admin_answers import LeaderResult, LeadersAnswer, RestartAnswer
from tidelog_controller.state.admin_requests import (
    CheckRestart,
    ElectPreferredLeaders,
    MoveLeaders,
    PartitionSelector,
    SetMaintenance,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_runtime.turns import QUICK_ITEMS_PER_TURN, in_turns

_EFFECTS = {
    Effect.UNAVAILABLE: pb.RESTART_EFFECT_UNAVAILABLE,
    Effect.UNDER_MIN_ISR: pb.RESTART_EFFECT_UNDER_MIN_ISR,
    Effect.LAST_REPLICA: pb.RESTART_EFFECT_LAST_REPLICA,
    Effect.LEADER_MOVES: pb.RESTART_EFFECT_LEADER_MOVES,
}


class LeaderCalls(AdminCalls):
    async def ElectPreferredLeaders(  # noqa: N802 - the generated name
        self, request: pb.ElectPreferredLeadersRequest, context: Context
    ) -> pb.ElectPreferredLeadersResponse:
        selectors = tuple(await in_turns(_selector, request.partitions))
        reply = await self._submit(
            ElectPreferredLeaders(
                NO_ID,
                selectors,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                caller_of(context),
            ),
            context,
        )
        return pb.ElectPreferredLeadersResponse(
            error=error_of(reply), partitions=await _results(reply)
        )

    async def MoveLeaders(  # noqa: N802 - the generated name
        self, request: pb.MoveLeadersRequest, context: Context
    ) -> pb.MoveLeadersResponse:
        moves = tuple(await in_turns(_leader_move, request.moves, QUICK_ITEMS_PER_TURN))
        reply = await self._submit(
            MoveLeaders(
                NO_ID,
                moves,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                caller_of(context),
            ),
            context,
        )
        return pb.MoveLeadersResponse(error=error_of(reply), partitions=await _results(reply))

    async def SetMaintenance(  # noqa: N802 - the generated name
        self, request: pb.SetMaintenanceRequest, context: Context
    ) -> pb.SetMaintenanceResponse:
        reply = await self._submit(
            SetMaintenance(
                NO_ID,
                tuple(request.broker_ids),
                request.maintenance,
                request.dry_run,
                request.timeout_ms,
                trace_of(context),
                caller_of(context),
            ),
            context,
        )
        kept = reply.answer.kept if isinstance(reply.answer, LeadersAnswer) else 0
        return pb.SetMaintenanceResponse(
            error=error_of(reply), leaders=await _results(reply), leaders_kept=kept
        )

    async def CheckRestart(  # noqa: N802 - the generated name
        self, request: pb.CheckRestartRequest, context: Context
    ) -> pb.CheckRestartResponse:
        reply = await self._submit(
            CheckRestart(NO_ID, request.broker_id, request.page_size, request.page_token), context
        )
        answer = reply.answer
        if not isinstance(answer, RestartAnswer):
            return pb.CheckRestartResponse(error=error_of(reply))
        counts = answer.counts
        return pb.CheckRestartResponse(
            safe=answer.safe,
            unavailable=counts.get(Effect.UNAVAILABLE, 0),
            under_min_isr=counts.get(Effect.UNDER_MIN_ISR, 0),
            last_replica=counts.get(Effect.LAST_REPLICA, 0),
            leader_moves=counts.get(Effect.LEADER_MOVES, 0),
            findings=await in_turns(_finding, answer.findings),
            next_page_token=answer.next_page_token,
        )


def _selector(wire: pb.PartitionSelector) -> PartitionSelector:
    return PartitionSelector(wire.topic, tuple(wire.partitions))


def _leader_move(wire: pb.LeaderMove) -> tuple[TopicPartition, int]:
    return TopicPartition(wire.topic, wire.partition), wire.leader


def _finding(found: tuple[TopicPartition, Effect, str]) -> pb.RestartFinding:
    name, effect, reason = found
    return pb.RestartFinding(
        topic=name.topic, partition=name.partition, effect=_EFFECTS[effect], reason=reason
    )


async def _results(reply: AdminReply) -> list[pb.LeaderResult]:
    answer = reply.answer
    if not isinstance(answer, LeadersAnswer):
        return []
    return await in_turns(_result, answer.results)


def _result(result: LeaderResult) -> pb.LeaderResult:
    name, before, leader, error = result
    return pb.LeaderResult(
        topic=name.topic,
        partition=name.partition,
        leader_before=before,
        leader=leader,
        error=error_to_wire(error) if error else None,
    )
