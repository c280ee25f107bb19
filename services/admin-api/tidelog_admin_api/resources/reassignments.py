"""/v1/reassignments and /v1/rebalance: moves of partitions to other brokers."""

from __future__ import annotations

from fastapi import APIRouter, Response

from tidelog.admin_messages import Move
from tidelog_admin_api.accepted import ACCEPTED_RESPONSES, OptionalRequest, accepted_answer
from tidelog_admin_api.bodies.operations import (
    BegunOperation,
    OperationPage,
    OperationRequest,
    ReassignRequest,
)
from tidelog_admin_api.dependencies import AskAdmin
from tidelog_admin_api.paging import PagingQuery
from tidelog_admin_api.parameters import DryRun
from tidelog_admin_api.problems import READ_PROBLEMS
from tidelog_admin_api.resources.operations import States, operation_page

router = APIRouter(prefix="/v1", tags=["operations"])


@router.get("/reassignments", responses=READ_PROBLEMS)
async def list_reassignments(
    admin: AskAdmin, paging: PagingQuery, state: States = None
) -> OperationPage:
    """Lists operations whose moves were chosen by hand, the newest first.

    /v1/operations lists all kinds.
    """
    return await operation_page(admin, paging, state or (), ["reassignment"])


@router.post("/reassignments", responses=ACCEPTED_RESPONSES)
async def reassign(
    admin: AskAdmin, body: ReassignRequest, answer: Response, dry_run: DryRun = False
) -> BegunOperation:
    """Moves partitions to the named brokers, whose number may change the replication factor."""
    moves = [
        Move(move.topic, move.partition, tuple(move.target), tuple(move.original), move.topic_id)
        for move in body.moves
    ]
    begun = await admin.reassign(
        moves,
        operation_id=body.operation_id or "",
        dry_run=dry_run,
        expected_plan=body.expected_plan,
    )
    return accepted_answer(begun, answer)


@router.post("/rebalance", responses=ACCEPTED_RESPONSES)
async def rebalance(
    admin: AskAdmin,
    answer: Response,
    body: OptionalRequest = None,
    dry_run: DryRun = False,
) -> BegunOperation:
    """Balances replicas and preferred leaders over the present brokers with the fewest moves."""
    asked = body or OperationRequest()
    begun = await admin.rebalance(
        operation_id=asked.operation_id or "", dry_run=dry_run, expected_plan=asked.expected_plan
    )
    return accepted_answer(begun, answer)
