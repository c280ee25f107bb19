"""/v1/explain: what is wrong now, why, and what to do."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tidelog.client.cluster_explainer import DEFAULT_TIMEOUT_MS
from tidelog.inspection.model import LEAST_ANSWER_MS, Scope
from tidelog_admin_api.bodies.explanations import Explanation, explanation
from tidelog_admin_api.dependencies import AskExplains
from tidelog_admin_api.parameters import BrokerQuery, PartitionQuery, TopicQuery, require_topic
from tidelog_admin_api.problems import READ_PROBLEMS

MAX_TIMEOUT_MS = 60_000

router = APIRouter(prefix="/v1/explain", tags=["explain"])


@router.get("", responses=READ_PROBLEMS)
async def explain(
    explains: AskExplains,
    topic: TopicQuery = "",
    partition: PartitionQuery = None,
    broker: BrokerQuery = None,
    timeout_ms: Annotated[
        int,
        Query(
            ge=LEAST_ANSWER_MS,
            le=MAX_TIMEOUT_MS,
            description="how long each service may take to answer; with less than the least a "
            "healthy one could not",
        ),
    ] = DEFAULT_TIMEOUT_MS,
) -> Explanation:
    """Explains what is wrong with the cluster, a topic, a partition or a broker.

    Each finding has evidence and the next step. All services are queried, and those that do not
    answer are named.
    """
    require_topic(topic, partition)
    return explanation(await explains.explain(Scope(topic, partition, broker), timeout_ms))
