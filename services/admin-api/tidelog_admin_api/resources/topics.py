"""/v1/topics: create, list, describe and delete topics."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Response

from tidelog.admin_messages import TopicDetails
from tidelog.cli.partition_health import SOUND, HealthCounts
from tidelog.client import Admin
from tidelog.client.descriptions import TopicDescription
from tidelog.errors import ErrorCode, TidelogError, unknown_topic
from tidelog.model import NO_LEADER
from tidelog.state_changes.topic import is_internal
from tidelog_admin_api.bodies.topic_bodies import (
    CreatedTopic,
    CreateTopicRequest,
    DeletedTopic,
    Topic,
    TopicFigures,
    TopicPage,
    TopicSummary,
    config_text,
)
from tidelog_admin_api.dependencies import AdminDep, SamplerDep
from tidelog_admin_api.history_sampler import HistorySampler
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.parameters import (
    MAX_NAME_LENGTH,
    USUAL_TIMEOUT_MS,
    DryRun,
    TimeoutMs,
    TopicName,
)
from tidelog_admin_api.preconditions import TAGGED, IfMatch, etag, expected_revision
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS

router = JsonRouter(prefix="/v1/topics", tags=["topics"])

_CREATED: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK.value: {
        "model": CreatedTopic,
        "description": "Dry run: the topic that would be created.",
    },
    HTTPStatus.CREATED.value: {
        "description": "The topic was created; Location names it.",
        "headers": {
            "Location": {"schema": {"type": "string"}, "example": "/v1/topics/sea"},
        },
    },
    **CHANGE_PROBLEMS,
}


@router.get("", responses=READ_PROBLEMS)
async def list_topics(
    admin: AdminDep,
    sampler: SamplerDep,
    paging: PagingQuery,
    name_contains: Annotated[
        str,
        Query(max_length=MAX_NAME_LENGTH, description="only names with this text; case-sensitive"),
    ] = "",
    internal: Annotated[bool, Query(description="true: also internal topics")] = False,
    unwell: Annotated[
        bool, Query(description="true: only topics with an unhealthy partition")
    ] = False,
) -> TopicPage:
    """Lists topics by name, with the health of their partitions, their sizes and rates."""
    topics = [
        (topic, counts)
        for topic in await admin.list_topics(internal=internal)
        if name_contains in topic.name
        and (str(counts := HealthCounts.of([topic])) != SOUND or not unwell)
    ]
    page, token = page_of("topics", topics, lambda pair: (pair[0].name,), paging)
    return TopicPage(items=[_summary(*pair, sampler) for pair in page], next_page_token=token)


def _summary(
    topic: TopicDescription, counts: HealthCounts, sampler: HistorySampler
) -> TopicSummary:
    return TopicSummary.of(
        topic,
        topic=topic.name,
        internal=is_internal(topic.name),
        health=str(counts),
        figures=_figures(topic.topic_id, sampler),
        **asdict(counts),
    )


def _figures(topic_id: str, sampler: HistorySampler) -> TopicFigures | None:
    latest = sampler.figures_of_topics()
    if topic_id not in latest.sizes:
        return None
    size, rate = latest.sizes[topic_id], latest.rates[topic_id]
    return TopicFigures(as_of_ms=latest.as_of_ms, **asdict(size), **asdict(rate))


@router.post("", status_code=HTTPStatus.CREATED, responses=_CREATED)
async def create_topic(
    body: CreateTopicRequest,
    admin: AdminDep,
    response: Response,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> CreatedTopic:
    """Creates a topic, and waits until its replicas have started or the time is up.

    A dry run shows the placement of the replicas.
    """
    partitions, factor = body.partitions, body.replication_factor
    if partitions is None:
        partitions = len(body.assignment) or 1
    if factor is None and body.assignment:
        factor = len(body.assignment[0])
    elif factor is None:
        factor = await admin.default_replication_factor(body.topic, body.operation_id or "")
    config = {key: config_text(value) for key, value in body.config.items()}
    created = await admin.create_topic(
        body.topic,
        partitions,
        factor,
        config,
        timeout_ms,
        assignment=body.assignment,
        operation_id=body.operation_id or "",
        dry_run=dry_run,
    )
    if dry_run:
        response.status_code = HTTPStatus.OK
    else:
        response.headers["Location"] = f"{router.prefix}/{quote(body.topic, safe='')}"
    return CreatedTopic.of(
        created, topic=body.topic, partitions=partitions, replication_factor=factor, config=config
    )


@router.get("/{topic}", responses={**TAGGED, **READ_PROBLEMS})
async def describe_topic(
    topic: TopicName, admin: AdminDep, sampler: SamplerDep, response: Response
) -> Topic:
    """Describes a topic: its full configuration, the health of its partitions, size and rate."""
    details = await details_of(topic, admin)
    response.headers["ETag"] = etag(details.revision)
    return _topic(details, sampler)


async def details_of(topic: str, admin: Admin, *, with_partitions: bool = True) -> TopicDetails:
    for details in await admin.topic_details([topic], with_partitions=with_partitions):
        return details
    # The topic was deleted between two pages.
    raise unknown_topic(topic)


def _topic(details: TopicDetails, sampler: HistorySampler) -> Topic:
    partitions = details.partitions
    counts = HealthCounts(
        details.partition_count,
        sum(p.leader == NO_LEADER for p in partitions),
        sum(len(p.isr) < p.min_isr for p in partitions),
        sum(p.is_under_replicated for p in partitions),
    )
    moving = sum(p.move is not None for p in partitions)
    figures = _figures(details.topic_id, sampler)
    return Topic.of(details, moving=moving, health=str(counts), figures=figures, **asdict(counts))


@router.delete("/{topic}", responses=CHANGE_PROBLEMS)
async def delete_topic(
    topic: TopicName,
    admin: AdminDep,
    confirm: Annotated[
        str,
        Query(
            max_length=MAX_NAME_LENGTH,
            description="the topic's name, as confirmation; not needed in a dry run",
            examples=["sea"],
        ),
    ] = "",
    if_match: IfMatch = None,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> DeletedTopic:
    """Deletes a topic with all its records, and waits until its replicas are gone or time is up.

    A dry run shows what would be deleted.
    """

    async def current() -> int:
        return (await details_of(topic, admin, with_partitions=False)).revision

    if not dry_run and confirm != topic:
        # A topic that does not exist needs no confirmation.
        await current()
        raise _not_confirmed(topic, confirm)
    expected = await expected_revision(if_match, current)
    if dry_run:
        plan = await admin.plan_deletion(topic, expected_revision=expected)
        return DeletedTopic.of(plan, topic=topic, deleted=False, pending_brokers=[])
    pending = await admin.delete_topic(topic, timeout_ms, expected_revision=expected)
    return DeletedTopic(
        topic=topic, deleted=True, partitions=None, brokers=[], pending_brokers=list(pending)
    )


def _not_confirmed(topic: str, confirm: str) -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_CONFIRMED,
        f"topic {topic!r} and its records would be deleted for good: set confirm to the topic's "
        f"name (it is {confirm!r}), or send a dry run first",
    )
