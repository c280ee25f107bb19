"""/v1/brokers/scrub: starts the scrub of brokers and describes its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Response

from tidelog.admin_messages import BrokerDetails
from tidelog.client.scrubbing import scrubbed_brokers
from tidelog.errors import TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.problem import Failure, failure_of, unreachable_failure
from tidelog_admin_api.bodies.scrub_bodies import (
    BrokerScrub,
    BrokerScrubPage,
    BrokerScrubs,
    ScrubRequest,
    ScrubStatus,
)
from tidelog_admin_api.dependencies import AdminDep, ScrubDep, ScrubsBroker
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.parameters import DryRun
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS, multi_status

# A broker answers when a pass has started, not when it has ended.
ANSWER_TIMEOUT_SECONDS = 2.0
# Brokers that one request contacts at a time.
MAX_CONCURRENT_CALLS = 32

router = JsonRouter(prefix="/v1/brokers", tags=["brokers"])

_NOT_ALL = multi_status(
    BrokerScrubs, "Some brokers did not answer; the `error` of each item says why."
)


@router.get("/scrub", responses=READ_PROBLEMS)
async def list_scrubs(admin: AdminDep, scrub: ScrubDep, paging: PagingQuery) -> BrokerScrubPage:
    """Lists the progress and findings of the scrub of each running broker."""
    running = scrubbed_brokers(await admin.describe_brokers(), ())
    page, token = page_of("scrubs", running, lambda broker: (broker.broker_id,), paging)
    items = await _call_brokers(scrub, page, begin=False, full_rate=False)
    return BrokerScrubPage(items=items, next_page_token=token)


@router.post("/scrub", responses=CHANGE_PROBLEMS | _NOT_ALL)
async def begin_scrub(
    admin: AdminDep,
    scrub: ScrubDep,
    answer: Response,
    body: Annotated[
        ScrubRequest | None, Body(examples=[{"broker_ids": [3], "full_rate": True}])
    ] = None,
    dry_run: DryRun = False,
) -> BrokerScrubs:
    """Starts a new scrub pass on some brokers or on all running ones.

    It replaces a pass in progress. A dry run returns the present progress. Brokers repair damage
    from other replicas. GET /v1/explain names damage that no other replica can repair.
    """
    request = body or ScrubRequest()
    ids = request.broker_ids
    brokers = scrubbed_brokers(await admin.describe_brokers(ids), ids)
    full_rate = request.full_rate and not dry_run
    items = await _call_brokers(scrub, brokers, begin=not dry_run, full_rate=full_rate)
    if any(item.error is not None for item in items):
        answer.status_code = HTTPStatus.MULTI_STATUS
    return BrokerScrubs(items=items)


async def _call_brokers(
    scrub: ScrubsBroker, brokers: Sequence[BrokerDetails], *, begin: bool, full_rate: bool
) -> list[BrokerScrub]:
    slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    async def call(broker: BrokerDetails) -> BrokerScrub:
        status: ScrubStatus | None = None
        error: Failure | None = None
        try:
            async with slots:
                progress = await scrub(
                    broker.address,
                    begin=begin,
                    full_rate=full_rate,
                    timeout_seconds=ANSWER_TIMEOUT_SECONDS,
                )
            status = ScrubStatus.model_validate(progress)
        except TidelogError as rejection:
            error = failure_of(rejection)
        except UnreachableError as unreachable:
            error = unreachable_failure(unreachable, outcome_unknown=begin)
        return BrokerScrub(broker_id=broker.broker_id, status=status, error=error)

    return list(await asyncio.gather(*(call(broker) for broker in brokers)))
