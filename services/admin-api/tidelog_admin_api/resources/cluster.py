"""/v1/cluster, /v1/gateways and /v1/explain: the state of the whole cluster."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from tidelog.client.cluster_explainer import DEFAULT_TIMEOUT_MS
from tidelog.client.departed_brokers import describe_with_departed_brokers
from tidelog.inspection.gateway_reports import known_gateways, state_of
from tidelog.inspection.state_reports import LEAST_ANSWER_MS, Scope, StateRequest
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.cluster_bodies import (
    AnnouncedGateway,
    Cluster,
    Explanation,
    FeatureLevel,
    FeatureLevelRequest,
    GatewayPage,
    Overview,
    PartitionMap,
)
from tidelog_admin_api.dependencies import AdminDep, ExplainDep, OverviewsDep, StatesDep
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.parameters import (
    BrokerQuery,
    DryRun,
    PartitionQuery,
    TopicQuery,
    require_topic,
)
from tidelog_admin_api.preconditions import TAGGED, IfMatch, etag, expected_revision
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS

router = JsonRouter(prefix="/v1/cluster", tags=["cluster"])


@router.get("", responses=READ_PROBLEMS)
async def describe_cluster(admin: AdminDep) -> Cluster:
    """Describes the brokers and controllers. A dead broker that holds replicas has status gone."""
    described, _ = await describe_with_departed_brokers(admin)
    return Cluster.model_validate(described)


@router.get("/feature-level", responses={**TAGGED, **READ_PROBLEMS})
async def describe_feature_level(admin: AdminDep, response: Response) -> FeatureLevel:
    """Describes the feature level, and the release of each registered broker and controller."""
    described = await admin.describe_feature_level()
    response.headers["ETag"] = etag(described.revision)
    return FeatureLevel.model_validate(described)


@router.put("/feature-level", responses={**TAGGED, **CHANGE_PROBLEMS})
async def raise_feature_level(
    body: FeatureLevelRequest,
    admin: AdminDep,
    response: Response,
    if_match: IfMatch = None,
    dry_run: DryRun = False,
) -> FeatureLevel:
    """Raises the feature level of the cluster. It cannot be lowered again.

    The request is rejected with UNSUPPORTED_VERSION while a registered process does not support
    the level. Afterwards no process of a release without it can start.
    """

    async def present_revision() -> int:
        return (await admin.describe_feature_level()).revision

    await admin.raise_feature_level(
        body.level,
        expected_revision=await expected_revision(if_match, present_revision),
        dry_run=dry_run,
    )
    return await describe_feature_level(admin, response)


@router.get("/overview", responses=READ_PROBLEMS)
async def describe_overview(overviews: OverviewsDep) -> Overview:
    """Summarizes the health of the cluster.

    The answer has counts, unhealthy partitions, brokers, running operations and findings. It
    comes from memory and is usually a few seconds old at most. `parts` shows the age of each
    part, and why a part could not be refreshed.
    """
    return await overviews.read()


@router.get("/partition-map", responses=READ_PROBLEMS)
async def map_partitions(overviews: OverviewsDep) -> PartitionMap:
    """Lists the leader, replicas and ISR of every partition in compact form, from memory."""
    return await overviews.read_map()


ANSWER_TIMEOUT_MS = 1_000

gateways = JsonRouter(prefix="/v1/gateways", tags=["cluster"])


@gateways.get("", responses=READ_PROBLEMS)
async def list_gateways(states: StatesDep, paging: PagingQuery) -> GatewayPage:
    """Lists gateways that sent an announcement within a day, and clients at their limits.

    They are ordered by address and host. Controllers keep announcements in memory. A controller
    that has just started may lack gateways that were silent before.
    """
    reported = await states.ask(StateRequest(services_only=True), ANSWER_TIMEOUT_MS)
    if not any(state.controller for state in reported.states):
        raise UnreachableError("any controller", "only controllers know gateways")
    known = known_gateways(reported.states)
    page, token = page_of("gateways", known, lambda each: (each.address, each.host), paging)
    items = [AnnouncedGateway.of(gateway, state=state_of(gateway)) for gateway in page]
    return GatewayPage(items=items, next_page_token=token)


MAX_TIMEOUT_MS = 60_000
# Severities that count as faults; `info` does not.
FAULTS = ("critical", "warning")

explanations = JsonRouter(prefix="/v1/explain", tags=["explain"])


@explanations.get("", responses=READ_PROBLEMS)
async def explain(
    explain_part: ExplainDep,
    topic: TopicQuery = "",
    partition: PartitionQuery = None,
    broker: BrokerQuery = None,
    timeout_ms: Annotated[
        int,
        Query(
            ge=LEAST_ANSWER_MS,
            le=MAX_TIMEOUT_MS,
            description="timeout of each service, in milliseconds. Below the minimum, healthy "
            "services could not answer in time",
        ),
    ] = DEFAULT_TIMEOUT_MS,
) -> Explanation:
    """Explains the problems of the cluster, a topic, a partition or a broker.

    Each finding has evidence and the next step. The gateway queries all services and names those
    that do not answer.
    """
    require_topic(topic, partition)
    explained = await explain_part(Scope(topic, partition, broker), timeout_ms)
    well = not any(finding.severity in FAULTS for finding in explained.findings)
    return Explanation.of(explained, well=well)
