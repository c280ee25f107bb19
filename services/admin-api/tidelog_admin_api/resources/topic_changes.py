"""/v1/topics/{topic}/…: changes of an existing topic."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Response

from tidelog.client import Admin
from tidelog_admin_api.accepted import ACCEPTED_RESPONSES, accepted_answer
from tidelog_admin_api.bodies.operation_bodies import BegunOperation
from tidelog_admin_api.bodies.topic_bodies import (
    AlteredConfig,
    ConfigRequest,
    FactorOfSeveralRequest,
    PartitionCountRequest,
    ReplicationFactorRequest,
    ResizedTopic,
    config_text,
)
from tidelog_admin_api.dependencies import AdminDep
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.parameters import USUAL_TIMEOUT_MS, DryRun, TimeoutMs, TopicName
from tidelog_admin_api.preconditions import TAGGED, IfMatch, etag, expected_revision
from tidelog_admin_api.problems import CHANGE_PROBLEMS, invalid
from tidelog_admin_api.resources.topics import details_of

router = JsonRouter(prefix="/v1/topics/{topic}", tags=["topics"])
factors = JsonRouter(tags=["topics"])


@router.patch("/config", responses={**TAGGED, **CHANGE_PROBLEMS})
async def alter_topic_config(
    topic: TopicName,
    body: ConfigRequest,
    admin: AdminDep,
    response: Response,
    if_match: IfMatch = None,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> AlteredConfig:
    """Sets some keys and resets others to their defaults, without a restart.

    Keys that already have the requested value are accepted.
    """

    async def current() -> int:
        return (await details_of(topic, admin, with_partitions=False)).revision

    altered = await admin.alter_topic_config(
        topic,
        {key: config_text(value) for key, value in body.set.items()},
        body.unset,
        timeout_ms,
        expected_revision=await expected_revision(if_match, current),
        dry_run=dry_run,
    )
    response.headers["ETag"] = etag(altered.revision)
    return AlteredConfig.model_validate(altered)


@router.put("/partition-count", responses={**TAGGED, **CHANGE_PROBLEMS})
async def set_partition_count(
    topic: TopicName,
    body: PartitionCountRequest,
    admin: AdminDep,
    response: Response,
    if_match: IfMatch = None,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> ResizedTopic:
    """Adds partitions, or deletes the last partitions with their data.

    A deletion needs the topic's name in `confirm`. A repeated deletion waits for the first one.
    """
    now = await details_of(topic, admin, with_partitions=False)

    async def current() -> int:
        return now.revision

    expected = await expected_revision(if_match, current)
    is_repeated = now.partitions_being_removed > 0 and body.partitions == now.partition_count
    confirm = body.confirm
    if is_repeated:
        # The first request was confirmed. The revision ensures that no further partition is
        # removed.
        confirm, expected = confirm or topic, expected or now.revision
    grows = body.partitions >= now.partition_count and not is_repeated
    if body.assignment and not grows:
        raise invalid(
            f"assignment is only for added partitions, and topic {topic} already has "
            f"{now.partition_count} partitions; omit it, or request more partitions"
        )
    if grows:
        resized = await admin.add_partitions(
            topic,
            body.partitions,
            timeout_ms,
            assignment=body.assignment,
            topic_id=now.topic_id,
            expected_revision=expected,
            dry_run=dry_run,
        )
    else:
        resized = await admin.remove_partitions(
            topic,
            body.partitions,
            timeout_ms,
            confirm_topic=confirm,
            topic_id=now.topic_id,
            expected_revision=expected,
            dry_run=dry_run,
        )
    response.headers["ETag"] = etag(resized.revision)
    return ResizedTopic.of(
        resized,
        topic=topic,
        partitions=body.partitions,
        added=resized.partitions if grows else 0,
        removed=0 if grows else resized.partitions,
    )


@router.put("/replication-factor", responses=ACCEPTED_RESPONSES)
async def set_replication_factor(
    topic: TopicName,
    body: ReplicationFactorRequest,
    admin: AdminDep,
    response: Response,
    dry_run: DryRun = False,
) -> BegunOperation:
    """Changes the replication factor of the topic. A dry run returns the plan."""
    return await _set_factor([topic], body, admin, response, dry_run=dry_run)


@factors.put("/v1/replication-factor", responses=ACCEPTED_RESPONSES)
async def set_replication_factor_of_several(
    body: FactorOfSeveralRequest,
    admin: AdminDep,
    response: Response,
    dry_run: DryRun = False,
) -> BegunOperation:
    """Changes the replication factor of several topics, as one operation."""
    topics = list(dict.fromkeys(body.topics))
    return await _set_factor(topics, body, admin, response, dry_run=dry_run)


async def _set_factor(
    topics: Sequence[str],
    body: ReplicationFactorRequest,
    admin: Admin,
    response: Response,
    *,
    dry_run: bool,
) -> BegunOperation:
    accepted = await admin.set_replication_factor(
        topics, body.replication_factor, **body.arguments(dry_run=dry_run)
    )
    return accepted_answer(accepted, response)
