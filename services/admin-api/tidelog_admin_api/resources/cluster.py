"""/v1/cluster: the cluster, its overview and its partition map."""

from __future__ import annotations

from fastapi import APIRouter

from tidelog.client.departed_brokers import describe_with_departed_brokers
from tidelog_admin_api.bodies.cluster import Cluster, Overview, PartitionMap
from tidelog_admin_api.dependencies import AskCluster, AskOverviews
from tidelog_admin_api.problems import READ_PROBLEMS

router = APIRouter(prefix="/v1/cluster", tags=["cluster"])


@router.get("", responses=READ_PROBLEMS)
async def describe_cluster(admin: AskCluster) -> Cluster:
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
