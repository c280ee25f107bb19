"""/v1/operations, /v1/reassignments, /v1/rebalance and /v1/throttle: long-running changes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Query, Response

from tidelog.admin_messages import Move
from tidelog.client import Admin
from tidelog_admin_api.accepted import (
    ACCEPTED_RESPONSES,
    OptionalRequest,
    accepted_answer,
    set_operation_headers,
)
from tidelog_admin_api.bodies.operation_bodies import (
    BegunOperation,
    CancelledOperation,
    MoveProgressPage,
    Operation,
    OperationKind,
    OperationPage,
    OperationRequest,
    OperationState,
    Plan,
    ReassignRequest,
    Throttle,
    ThrottleRequest,
)
from tidelog_admin_api.dependencies import AdminDep
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.paging import Paging, PagingQuery, page_of
from tidelog_admin_api.parameters import MAX_NAME_LENGTH, MAX_QUERY_ENTRIES, DryRun
from tidelog_admin_api.preconditions import TAGGED, IfMatch, etag, expected_revision
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS

router = JsonRouter(prefix="/v1/operations", tags=["operations"])

Id = Annotated[
    str,
    Path(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        description="id of the operation",
        examples=["grow-2026-01"],
    ),
]

States = Annotated[
    list[OperationState] | None,
    Query(max_length=MAX_QUERY_ENTRIES, description="only these states; default: all"),
]


@router.get("", responses=READ_PROBLEMS)
async def list_operations(
    admin: AdminDep,
    paging: PagingQuery,
    state: States = None,
    kind: Annotated[
        list[OperationKind] | None,
        Query(max_length=MAX_QUERY_ENTRIES, description="only these kinds; default: all"),
    ] = None,
) -> OperationPage:
    """Lists running operations and the last 100 that have ended, the newest first."""
    return await operation_page(admin, paging, state or (), kind or ())


async def operation_page(
    admin: Admin,
    paging: Paging,
    states: Sequence[OperationState],
    kinds: Sequence[OperationKind],
) -> OperationPage:
    found = await admin.list_operations(states, kinds)
    items, token = page_of(
        "operations", found, lambda o: (-o.requested_at_ms, o.operation_id), paging
    )
    return OperationPage.of_items(items, token)


@router.get("/{operation_id}", responses={**TAGGED, **READ_PROBLEMS})
async def describe_operation(admin: AdminDep, operation_id: Id, answer: Response) -> Operation:
    """Describes an operation and its progress.

    /v1/operations/{operation_id}/moves lists its moves.
    """
    operation = await admin.describe_operation(operation_id)
    answer.headers["ETag"] = etag(operation.revision)
    return Operation.model_validate(operation)


@router.get("/{operation_id}/moves", responses=READ_PROBLEMS)
async def list_moves(admin: AdminDep, operation_id: Id, paging: PagingQuery) -> MoveProgressPage:
    """Lists an operation's moves by topic and partition, and the replicas that each waits for."""
    moves, token = await admin.operation_moves_page(
        operation_id, paging.page_size, paging.page_token
    )
    return MoveProgressPage.of_items(moves, token)


@router.post(
    "/{operation_id}/cancel",
    responses={
        **CHANGE_PROBLEMS,
        HTTPStatus.ACCEPTED.value: {
            "model": CancelledOperation,
            "description": "Active moves are being reverted; Location is the operation.",
        },
    },
)
async def cancel_operation(
    admin: AdminDep,
    operation_id: Id,
    answer: Response,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> CancelledOperation:
    """Cancels an operation.

    Waiting moves are dropped, active moves are reverted to their original replicas, and
    completed moves stay. A repeated request is accepted.
    """

    async def current() -> int:
        return (await admin.describe_operation(operation_id)).revision

    expected = await expected_revision(if_match, current)
    if dry_run:
        plan = await admin.plan_cancellation(operation_id, expected_revision=expected)
        return CancelledOperation(operation=None, plan=Plan.model_validate(plan))
    operation = await admin.cancel_operation(operation_id, expected_revision=expected)
    set_operation_headers(operation, answer)
    return CancelledOperation(operation=Operation.model_validate(operation), plan=None)


@router.post("/{operation_id}/reverse", responses=ACCEPTED_RESPONSES)
async def reverse_operation(
    admin: AdminDep,
    operation_id: Id,
    answer: Response,
    body: OptionalRequest = None,
    dry_run: DryRun = False,
) -> BegunOperation:
    """Reverses the completed moves of an operation, by a new operation.

    Partitions that have been moved again since, or deleted, stay as they are.
    """
    arguments = (body or OperationRequest()).arguments(dry_run=dry_run)
    return accepted_answer(await admin.reverse_operation(operation_id, **arguments), answer)


moves_router = JsonRouter(prefix="/v1", tags=["operations"])


@moves_router.get("/reassignments", responses=READ_PROBLEMS)
async def list_reassignments(
    admin: AdminDep, paging: PagingQuery, state: States = None
) -> OperationPage:
    """Lists operations of kind reassignment, the newest first.

    /v1/operations lists all kinds.
    """
    return await operation_page(admin, paging, state or (), ["reassignment"])


@moves_router.post("/reassignments", responses=ACCEPTED_RESPONSES)
async def reassign(
    admin: AdminDep, body: ReassignRequest, answer: Response, dry_run: DryRun = False
) -> BegunOperation:
    """Moves partitions to the named brokers.

    A different number of brokers changes the replication factor.
    """
    moves = [
        Move(move.topic, move.partition, tuple(move.target), tuple(move.original), move.topic_id)
        for move in body.moves
    ]
    accepted = await admin.reassign(moves, **body.arguments(dry_run=dry_run))
    return accepted_answer(accepted, answer)


@moves_router.post("/rebalance", responses=ACCEPTED_RESPONSES)
async def rebalance(
    admin: AdminDep,
    answer: Response,
    body: OptionalRequest = None,
    dry_run: DryRun = False,
) -> BegunOperation:
    """Balances replicas and preferred leaders over the present brokers with the fewest moves."""
    arguments = (body or OperationRequest()).arguments(dry_run=dry_run)
    return accepted_answer(await admin.rebalance(**arguments), answer)


throttle_router = JsonRouter(prefix="/v1/throttle", tags=["operations"])


@throttle_router.get("", responses={**TAGGED, **READ_PROBLEMS})
async def describe_throttle(admin: AdminDep, response: Response) -> Throttle:
    """Describes the throttle of moves."""
    throttle = await admin.describe_throttle()
    response.headers["ETag"] = etag(throttle.revision)
    return Throttle.model_validate(throttle)


@throttle_router.put("", responses={**TAGGED, **CHANGE_PROBLEMS})
async def set_throttle(
    body: ThrottleRequest,
    admin: AdminDep,
    response: Response,
    if_match: IfMatch = None,
    dry_run: DryRun = False,
) -> Throttle:
    """Sets the throttle of all moves, also of active ones. It never slows in-sync replicas."""

    async def current() -> int:
        return (await admin.describe_throttle()).revision

    throttle = await admin.set_throttle(
        body.bytes_per_second,
        expected_revision=await expected_revision(if_match, current),
        dry_run=dry_run,
    )
    response.headers["ETag"] = etag(throttle.revision)
    return Throttle.model_validate(throttle)
