"""/v1/leaders: who leads partitions."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from tidelog.client.operations import LeaderChange
from tidelog.model import TopicPartition
from tidelog_admin_api.bodies.leaders import (
    ElectPreferredRequest,
    LeaderResults,
    MoveLeadersRequest,
    leader_results,
)
from tidelog_admin_api.bodies.problem import FieldError
from tidelog_admin_api.dependencies import AskLeaders
from tidelog_admin_api.parameters import USUAL_TIMEOUT_MS, DryRun, TimeoutMs
from tidelog_admin_api.problems import CHANGE_PROBLEMS, invalid

router = APIRouter(prefix="/v1/leaders", tags=["leaders"])

_NOT_ALL: dict[int | str, dict[str, Any]] = {
    HTTPStatus.MULTI_STATUS.value: {
        "model": LeaderResults,
        "description": "Some could not be made leaders; each says why.",
    }
}


@router.post("/elect-preferred", responses=CHANGE_PROBLEMS | _NOT_ALL)
async def elect_preferred_leaders(
    admin: AskLeaders,
    answer: Response,
    body: Annotated[
        ElectPreferredRequest | None,
        Body(examples=[{"partitions": [{"topic": "sea", "partitions": [0]}]}]),
    ] = None,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> LeaderResults:
    """Lets preferred replicas lead where they are in sync: of some partitions, of topics, or of
    all. Those that are led so already are left out of the answer."""
    selectors = (body or ElectPreferredRequest()).partitions
    _refuse_repeated("partitions", (selector.topic for selector in selectors))
    chosen = {selector.topic: selector.partitions for selector in selectors}
    changes = await admin.elect_preferred_leaders(chosen or None, timeout_ms, dry_run=dry_run)
    return _results(answer, changes)


@router.post("/move", responses=CHANGE_PROBLEMS | _NOT_ALL)
async def move_leaders(
    admin: AskLeaders,
    body: MoveLeadersRequest,
    answer: Response,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> LeaderResults:
    """Lets chosen replicas lead from now on: each becomes its partition's preferred one."""
    names = [TopicPartition(move.topic, move.partition) for move in body.moves]
    _refuse_repeated("moves", names)
    leaders = {name: move.leader for name, move in zip(names, body.moves, strict=True)}
    return _results(answer, await admin.move_leaders(leaders, timeout_ms, dry_run=dry_run))


def _refuse_repeated(field: str, named: Iterable[object]) -> None:
    first: dict[object, int] = {}
    for index, name in enumerate(named):
        if first.setdefault(name, index) != index:
            message = f"{name} is named by {field}[{first[name]}] already; name it once"
            raise invalid(
                f"{field}[{index}]: {message}",
                [FieldError(field=f"{field}[{index}]", message=message)],
            )


def _results(answer: Response, changes: list[LeaderChange]) -> LeaderResults:
    results = leader_results(changes)
    if results.has_failures:
        answer.status_code = HTTPStatus.MULTI_STATUS
    return results
