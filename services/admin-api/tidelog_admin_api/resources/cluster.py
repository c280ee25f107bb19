"""/v1/cluster: the cluster as a whole."""

from __future__ import annotations

from fastapi import APIRouter

from tidelog.client.gone_brokers import describe_with_gone_brokers
from tidelog_admin_api.bodies.cluster import Cluster, Overview, PartitionMap
from tidelog_admin_api.dependencies import AskCluster, AskOverviews
from tidelog_admin_api.problems import READ_PROBLEMS

router = APIRouter(prefix="/v1/cluster", tags=["cluster"])


@router.get("", responses=READ_PROBLEMS)
async def describe_cluster(admin: AskCluster) -> Cluster:
    """The brokers and the controllers; a broker that holds replicas and is dead is "gone"."""
    described, _ = await describe_with_gone_brokers(admin)
    return Cluster.model_validate(described)


@router.get("/overview", responses=READ_PROBLEMS)
async def describe_overview(overviews: AskOverviews) -> Overview:
    """Health in one look: counts, the partitions and brokers that are unwell, operations that
    run, and what explain finds. Answered from memory, at most a few seconds old; `parts` tells
    how old, and what could not be asked."""
    return await overviews.read()


@router.get("/partition-map", responses=READ_PROBLEMS)
async def map_partitions(overviews: AskOverviews) -> PartitionMap:
    """Who leads and who holds every partition, as small as it can be said. Answered from memory
    as the overview is."""
    return await overviews.read_map()
