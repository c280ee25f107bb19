"""/v1/topics/{topic}/partitions: partitions, their replicas and their events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import Query

from tidelog.cli.partition_health import SOUND, partition_health
from tidelog.client.descriptions import PartitionDescription
from tidelog.errors import unknown_partition
from tidelog.inspection.replica_reports import Replicas, replicas_by_partition
from tidelog.inspection.state_reports import StateRequest
from tidelog.model import MAX_INT32
from tidelog_admin_api.bodies.event_bodies import EventList, event_list
from tidelog_admin_api.bodies.partition_bodies import PartitionPage, PartitionWithReplicas
from tidelog_admin_api.dependencies import AdminDep, StatesDep, TimelinesDep
from tidelog_admin_api.event_filter import EventFilter, newest
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.parameters import (
    DEFAULT_EVENTS,
    BeforeMs,
    EventLimit,
    PartitionNumber,
    SinceMs,
    TopicName,
)
from tidelog_admin_api.problems import READ_PROBLEMS
from tidelog_admin_api.replica_views import partition_of, partition_with_replicas
from tidelog_runtime.cooperative import map_yielding

# How long brokers may take to report their replicas.
REPORT_TIMEOUT_MS = 1_000

router = JsonRouter(prefix="/v1/topics/{topic}/partitions", tags=["partitions"])

_Broker = Annotated[int | None, Query(ge=0, le=MAX_INT32, description="id of a broker")]


@router.get("", responses=READ_PROBLEMS)
async def list_partitions(
    topic: TopicName,
    admin: AdminDep,
    states: StatesDep,
    paging: PagingQuery,
    unwell: Annotated[bool, Query(description="true: only unhealthy partitions")] = False,
    leader: Annotated[_Broker, Query(description="only partitions that this broker leads")] = None,
    broker: Annotated[
        _Broker, Query(description="only partitions with a replica on this broker")
    ] = None,
    moving: Annotated[bool, Query(description="true: only partitions that are moved")] = False,
    logs: Annotated[
        bool, Query(description="true: also the state of each log, as the leader reports it")
    ] = False,
) -> PartitionPage:
    """Lists partitions by number, with their leader, ISR and health."""

    def is_selected(partition: PartitionDescription) -> bool:
        return (
            (not unwell or partition_health(partition) != SOUND)
            and leader in (None, partition.leader)
            and (broker is None or broker in partition.replicas)
            and (not moving or bool(partition.moving_operation))
        )

    described = await admin.describe_topic(topic)
    partitions = [partition for partition in described.partitions if is_selected(partition)]
    page, token = page_of(f"partitions of {topic}", partitions, lambda p: (p.partition,), paging)
    reported: Mapping[int, Replicas] = {}
    if logs and page:
        answers = await states.ask(StateRequest(topic), REPORT_TIMEOUT_MS)
        reported = replicas_by_partition(answers.states, topic)
    items = await map_yielding(lambda p: partition_of(topic, p, reported.get(p.partition)), page)
    return PartitionPage(items=items, next_page_token=token)


@router.get("/{partition}", responses=READ_PROBLEMS)
async def describe_partition(
    topic: TopicName,
    partition: PartitionNumber,
    admin: AdminDep,
    states: StatesDep,
) -> PartitionWithReplicas:
    """Describes a partition and each replica: offsets of its log, its lag and its problem."""
    described = await admin.describe_topic(topic)
    found = next((p for p in described.partitions if p.partition == partition), None)
    if found is None:
        raise unknown_partition(topic, partition, described.partition_count)
    reported = await states.ask(StateRequest(topic, partition), REPORT_TIMEOUT_MS)
    return partition_with_replicas(topic, found, reported)


@router.get("/{partition}/events", responses=READ_PROBLEMS, response_model_exclude_unset=True)
async def list_partition_events(
    topic: TopicName,
    partition: PartitionNumber,
    timelines: TimelinesDep,
    since_ms: SinceMs = 0,
    before_ms: BeforeMs = None,
    limit: EventLimit = DEFAULT_EVENTS,
) -> EventList:
    """Lists the newest state changes of the partition and of its topic, the oldest first.

    The sources are the memory of services and the topic __state_changes, which also holds the
    changes of services that have ended.
    """
    event_filter = EventFilter(topic, partition, since_ms=since_ms, before_ms=before_ms)
    timeline = await timelines.timeline(event_filter.scope)
    found = await asyncio.to_thread(newest, timeline.events, event_filter, limit)
    return event_list(found, timeline.silent, timeline.notes)
