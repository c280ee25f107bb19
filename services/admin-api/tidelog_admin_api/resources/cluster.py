"""/v1/cluster, /v1/gateways and /v1/explain: the state of the whole cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from tidelog.client.cluster_explainer import DEFAULT_TIMEOUT_MS
from tidelog.client.departed_brokers import describe_with_departed_brokers
from tidelog.inspection.gateway_reports import known_gateways, state_of
from tidelog.inspection.model import LEAST_ANSWER_MS, Scope, StateRequest
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.cluster_bodies import (
    AnnouncedGateway,
    Cluster,
    Explanation,
    GatewayPage,
    Overview,
    PartitionMap,
    explanation,
)
from tidelog_admin_api.dependencies import AskAdmin, AskExplains, AskOverviews, AskStates
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.parameters import BrokerQuery, PartitionQuery, TopicQuery, require_topic
from tidelog_admin_api.problems import READ_PROBLEMS

router = APIRouter(prefix="/v1/cluster", tags=["cluster"])


@router.get("", responses=READ_PROBLEMS)
async def describe_cluster(admin: AskAdmin) -> Cluster:
    """Describes the brokers and controllers. A dead broker that holds replicas is "gone"."""
    described, _ = await describe_with_departed_brokers(admin)
    return Cluster.model_validate(described)


@router.get("/overview", responses=READ_PROBLEMS)
async def describe_overview(overviews: AskOverviews) -> Overview:
    """Summarizes the cluster's health.

    It has counts, unhealthy partitions and brokers, running operations and findings. The answer
    comes from memory and is at most a few seconds old; `parts` shows how old, and what did not
    answer.
    """
    return await overviews.read()


@router.get("/partition-map", responses=READ_PROBLEMS)
async def map_partitions(overviews: AskOverviews) -> PartitionMap:
    """Maps the leader, replicas and ISR of every partition in a compact form, from memory."""
    return await overviews.read_map()


# How long a controller may take to answer.
ANSWER_TIMEOUT_MS = 1_000

gateways = APIRouter(prefix="/v1/gateways", tags=["cluster"])


@gateways.get("", responses=READ_PROBLEMS)
async def list_gateways(states: AskStates, paging: PagingQuery) -> GatewayPage:
    """Lists gateways that announced themselves within a day, and the clients at their limits.

    They are ordered by address and host. Controllers keep this in memory: one that has just
    started may lack gateways that were silent before.
    """
    told = await states.ask(StateRequest(services_only=True), ANSWER_TIMEOUT_MS)
    if not any(state.controller for state in told.states):
        raise UnreachableError("any controller", "none answers, and only they know of gateways")
    known = known_gateways(told.states)
    page, token = page_of(
        "gateways", known, lambda gateway: (gateway.address, gateway.host), paging
    )
    items = [
        AnnouncedGateway.model_validate({**asdict(gateway), "state": state_of(gateway)})
        for gateway in page
    ]
    return GatewayPage(items=items, next_page_token=token)


MAX_TIMEOUT_MS = 60_000

explanations = APIRouter(prefix="/v1/explain", tags=["explain"])


@explanations.get("", responses=READ_PROBLEMS)
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
