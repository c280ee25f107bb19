"""/v1/recovery: elects leaders for partitions without one, even if records are lost."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Response

from tidelog.admin_messages import RecoveryChoice
from tidelog.errors import ErrorCode, TidelogError, unknown_topic
from tidelog_admin_api.bodies.base import PartitionNumber
from tidelog_admin_api.bodies.recovery_bodies import (
    RecoverRequest,
    Recovery,
    RecoveryPage,
    RecoveryResults,
)
from tidelog_admin_api.dependencies import AdminDep
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.parameters import (
    USUAL_TIMEOUT_MS,
    DryRun,
    TimeoutMs,
    TopicQuery,
)
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS, multi_status
from tidelog_admin_api.resources.topics import details_of

MAX_PARTITIONS_IN_QUERY = 1_000

router = JsonRouter(prefix="/v1/recovery", tags=["recovery"])


@router.get("", responses=READ_PROBLEMS)
async def describe_recovery(
    admin: AdminDep,
    paging: PagingQuery,
    topic: TopicQuery = "",
    partition: Annotated[
        list[PartitionNumber] | None,
        Query(
            max_length=MAX_PARTITIONS_IN_QUERY,
            description="partitions of the topic; default: all partitions without a leader",
        ),
    ] = None,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> RecoveryPage:
    """Describes partitions without a leader.

    The answer shows what their surviving replicas hold, and what each choice of a leader would
    lose. It leaves out partitions that have a leader.
    """
    found = await admin.describe_recovery(topic, partition or (), timeout_ms)
    items, token = page_of("recovery", found, lambda r: (r.topic, r.partition), paging)
    return RecoveryPage.of_items(items, token)


_NOT_ALL = multi_status(
    RecoveryResults, "Some partitions have no leader yet; the `error` of each says why."
)


@router.post("", responses=CHANGE_PROBLEMS | _NOT_ALL)
async def recover_partitions(
    admin: AdminDep,
    body: RecoverRequest,
    answer: Response,
    dry_run: DryRun = False,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> RecoveryResults:
    """Elects leaders for partitions without one, with consent to the loss of records.

    It elects the chosen replicas, or the best surviving ones. Use it if the replicas that hold
    every committed record will not come back. `confirm` must be the topic's name.
    """
    choices = [
        RecoveryChoice(choice.partition, choice.broker_id, choice.expected_revision)
        for choice in body.choices
    ]
    if not body.topic:
        # Without a topic, all topics would be described.
        raise unknown_topic(body.topic)
    if dry_run:
        found = await admin.describe_recovery(
            body.topic, body.partitions, timeout_ms, choices=choices
        )
        described = [Recovery.model_validate(details) for details in found]
        return RecoveryResults(topic=body.topic, results=[], described=described)
    if body.confirm != body.topic:
        # A topic that does not exist needs no confirmation.
        await details_of(body.topic, admin, with_partitions=False)
        raise TidelogError(
            ErrorCode.NOT_CONFIRMED,
            f"records of topic {body.topic!r} may be lost for good. Check with dry_run=true "
            "what each choice loses, then set confirm to the topic's name; it is "
            f"{body.confirm!r}",
        )
    recovered = await admin.recover_partitions(
        body.topic,
        body.partitions,
        timeout_ms,
        from_live_replicas=body.from_live_replicas,
        choices=choices,
    )
    results = RecoveryResults.model_validate(
        {"topic": body.topic, "results": recovered, "described": []}
    )
    if results.has_failures:
        answer.status_code = HTTPStatus.MULTI_STATUS
    return results
