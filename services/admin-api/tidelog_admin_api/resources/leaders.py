"""/v1/leaders: leadership of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Response

from tidelog.admin_messages import LeaderChange
from tidelog.model import TopicPartition
from tidelog_admin_api.bodies.leader_bodies import (
    ElectPreferredRequest,
    LeaderResults,
    MoveLeadersRequest,
    PartitionSelector,
)
from tidelog_admin_api.dependencies import AdminDep
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.parameters import USUAL_TIMEOUT_MS, DryRun, TimeoutMs
from tidelog_admin_api.problems import CHANGE_PROBLEMS, invalid, multi_status

router = JsonRouter(prefix="/v1/leaders", tags=["leaders"])

_RESPONSES = CHANGE_PROBLEMS | multi_status(
    LeaderResults, "Some leaders were not elected; the `error` of each says why."
)


@router.post("/elect-preferred", responses=_RESPONSES)
async def elect_preferred_leaders(
    admin: AdminDep,
    answer: Response,
    body: Annotated[
        ElectPreferredRequest | None,
        Body(examples=[{"partitions": [{"topic": "sea", "partitions": [0]}]}]),
    ] = None,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> LeaderResults:
    """Elects in-sync preferred replicas for some partitions, for topics, or for all partitions.

    The answer leaves out partitions whose preferred replica already leads.

    Leadership returns to preferred replicas by itself: every leader_balance_interval_ms (5
    minutes), for each broker that lacks more than leader_imbalance_percent (10 %) of the
    leaderships that prefer it, unless leader_balance is false.
    """
    chosen = _chosen((body or ElectPreferredRequest()).partitions)
    changes = await admin.elect_preferred_leaders(chosen or None, timeout_ms, dry_run=dry_run)
    return leader_results(answer, changes)


@router.post("/move", responses=_RESPONSES)
async def move_leaders(
    admin: AdminDep,
    body: MoveLeadersRequest,
    answer: Response,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> LeaderResults:
    """Makes the named replicas leaders and the preferred replicas of their partitions."""
    leaders: dict[TopicPartition, int] = {}
    for move in body.moves:
        name = TopicPartition(move.topic, move.partition)
        if name in leaders:
            raise invalid(f"{name} is named twice; name each partition once")
        leaders[name] = move.leader
    return leader_results(answer, await admin.move_leaders(leaders, timeout_ms, dry_run=dry_run))


def _chosen(selectors: Iterable[PartitionSelector]) -> dict[str, list[int]]:
    """Returns the partitions by topic. An empty list selects all partitions of the topic."""
    chosen: dict[str, list[int]] = {}
    whole: set[str] = set()
    for selector in selectors:
        chosen.setdefault(selector.topic, []).extend(selector.partitions)
        if not selector.partitions:
            whole.add(selector.topic)
    return {topic: [] if topic in whole else numbers for topic, numbers in chosen.items()}


def leader_results(answer: Response, changes: list[LeaderChange]) -> LeaderResults:
    """Returns the body. Sets the status 207 if some leaders were not elected."""
    results = LeaderResults.model_validate({"items": changes})
    if results.has_failures:
        answer.status_code = HTTPStatus.MULTI_STATUS
    return results
