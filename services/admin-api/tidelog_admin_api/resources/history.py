"""/v1/history: figures over time, from the gateway's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import Query

from tidelog.client.admin import Admin
from tidelog.client.descriptions import PartitionDescription, TopicDescription
from tidelog.errors import ErrorCode, TidelogError, unknown_partition
from tidelog.model import MAX_INT32
from tidelog_admin_api.bodies.base import MAX_INT64
from tidelog_admin_api.bodies.history_bodies import History, HistorySeries
from tidelog_admin_api.dependencies import AdminDep, GatewayDep, OverviewsDep, SamplerDep
from tidelog_admin_api.history_figures import (
    BROKER_FIGURES,
    CLUSTER_FIGURES,
    LAG,
    TOPIC_FIGURES,
    Key,
    broker_key,
    lag_key,
    topic_key,
)
from tidelog_admin_api.history_sampler import ClusterFacts
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.parameters import PartitionQuery, TopicQuery, require_topic
from tidelog_admin_api.problems import READ_PROBLEMS, invalid

# Each has a series for each figure.
MAX_BROKERS = 16

router = JsonRouter(prefix="/v1/history", tags=["cluster"])


@router.get("", responses=READ_PROBLEMS)
async def read_history(
    admin: AdminDep,
    overviews: OverviewsDep,
    sampler: SamplerDep,
    gateway: GatewayDep,
    topic: TopicQuery = "",
    partition: PartitionQuery = None,
    broker: Annotated[
        list[Annotated[int, Query(ge=0, le=MAX_INT32)]] | None,
        Query(max_length=MAX_BROKERS, description="ids of brokers; default: the whole cluster"),
    ] = None,
    since_ms: Annotated[
        int,
        Query(
            ge=0,
            le=MAX_INT64,
            description="only samples after then, in milliseconds since 1970; 0: all",
        ),
    ] = 0,
) -> History:
    """Returns the history of the cluster, a topic, a partition, or some brokers.

    The answer comes from memory. It has the last hour at most, as far as this gateway ran. Pass the
    last time as `since_ms` to get only newer samples.
    """
    require_topic(topic, partition)
    if topic and broker:
        raise invalid("topic and broker are both given; give one of them")
    facts = await overviews.read_facts()
    if topic:
        described = await _topic_of(facts, topic, partition, admin)
        series = _series_of_topic(described, partition)
    elif broker:
        await _require_brokers(facts, broker, admin)
        series = [(f, b, broker_key(f, b)) for b in dict.fromkeys(broker) for f in BROKER_FIGURES]
    else:
        series = [(name, None, (name,)) for name in CLUSTER_FIGURES]
    keys = [key for _, _, key in series]
    # In a thread, because the values of many brokers would block the event loop.
    read = await asyncio.to_thread(sampler.history.read, keys, since_ms)
    return History(
        now_ms=gateway.dependencies.clock.wall_ms(),
        began_ms=sampler.history.began_ms,
        interval_ms=sampler.interval_ms,
        times_ms=read.times_ms,
        series=[
            HistorySeries(name=name, broker_id=broker_id, values=values)
            for (name, broker_id, _), values in zip(series, read.values, strict=True)
        ],
    )


_Series = tuple[str, int | None, Key]


async def _require_brokers(facts: ClusterFacts, brokers: Sequence[int], admin: Admin) -> None:
    """The facts are a few seconds old. A broker that they lack may just have joined."""
    known = {each.broker_id for each in facts.cluster.brokers}
    known.update(b for each in facts.topics for p in each.partitions for b in p.replicas)
    if not known.issuperset(brokers):
        # It also lists brokers that do not run and hold nothing, such as removed ones.
        known.update(each.broker_id for each in await admin.describe_brokers())
    for broker_id in brokers:
        if broker_id not in known:
            raise TidelogError(ErrorCode.UNKNOWN_BROKER, f"broker {broker_id} is not known")


async def _topic_of(
    facts: ClusterFacts, name: str, partition: int | None, admin: Admin
) -> TopicDescription:
    """A topic or a partition that the facts lack may just have been created."""
    found = next((topic for topic in facts.topics if topic.name == name), None)
    if found is None or (partition or 0) >= found.partition_count:
        return await admin.describe_topic(name)
    return found


def _series_of_topic(topic: TopicDescription, partition: int | None) -> list[_Series]:
    if partition is None:
        return [(name, None, topic_key(name, topic.topic_id)) for name in TOPIC_FIGURES]
    described = _partition_of(topic, partition)
    return [(LAG, b, lag_key(topic.topic_id, partition, b)) for b in described.replicas]


def _partition_of(topic: TopicDescription, partition: int) -> PartitionDescription:
    found = next((each for each in topic.partitions if each.partition == partition), None)
    if found is None:
        raise unknown_partition(topic.name, partition, topic.partition_count)
    return found
