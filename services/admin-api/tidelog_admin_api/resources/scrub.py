"""/v1/brokers/scrub: have brokers check what is on their disks, and how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from tidelog.client.operations import BrokerDetails
from tidelog.client.scrubbing import scrubbed_brokers
from tidelog.errors import TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.failures import Failure, failure_of, unreachable_failure
from tidelog_admin_api.bodies.scrub import (
    BrokerScrub,
    BrokerScrubPage,
    BrokerScrubs,
    ScrubRequest,
    ScrubStatus,
)
from tidelog_admin_api.dependencies import AskBrokers, AskScrub, ScrubsBroker
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.parameters import DryRun
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS

# Each broker has so long to answer: it begins a pass, and does not wait for it.
ANSWER_TIMEOUT_SECONDS = 2.0
# Brokers that are asked at the same time by one request.
MAX_ASKED_AT_ONCE = 32

router = APIRouter(prefix="/v1/brokers", tags=["brokers"])

_NOT_ALL: dict[int | str, dict[str, Any]] = {
    HTTPStatus.MULTI_STATUS.value: {
        "model": BrokerScrubs,
        "description": "Some brokers gave no answer; each item says why.",
    }
}


@router.get("/scrub", responses=READ_PROBLEMS)
async def list_scrubs(admin: AskBrokers, scrub: AskScrub, paging: PagingQuery) -> BrokerScrubPage:
    """How far each broker that runs is with the check of its logs, and what it found."""
    running = scrubbed_brokers(await admin.describe_brokers(), ())
    page, token = page_of("scrubs", running, lambda broker: (broker.broker_id,), paging)
    items = await _ask(scrub, page, begin=False, full_rate=False)
    return BrokerScrubPage(items=items, next_page_token=token)


@router.post("/scrub", responses=CHANGE_PROBLEMS | _NOT_ALL)
async def begin_scrub(
    admin: AskBrokers,
    scrub: AskScrub,
    answer: Response,
    body: Annotated[
        ScrubRequest | None, Body(examples=[{"broker_ids": [3], "full_rate": True}])
    ] = None,
    dry_run: DryRun = False,
) -> BrokerScrubs:
    """Begins a new pass now, in place of one that is under way: on some brokers, or on all that
    run. A dry run answers with how far each is. Damage is repaired from other replicas;
    GET /v1/explain names what no other replica holds."""
    asked = body or ScrubRequest()
    brokers = scrubbed_brokers(await admin.describe_brokers(asked.broker_ids), asked.broker_ids)
    items = await _ask(scrub, brokers, begin=not dry_run, full_rate=asked.full_rate and not dry_run)
    if any(item.error is not None for item in items):
        answer.status_code = HTTPStatus.MULTI_STATUS
    return BrokerScrubs(items=items)


async def _ask(
    scrub: ScrubsBroker, brokers: Sequence[BrokerDetails], *, begin: bool, full_rate: bool
) -> list[BrokerScrub]:
    at_once = asyncio.Semaphore(MAX_ASKED_AT_ONCE)

    async def one(broker: BrokerDetails) -> BrokerScrub:
        status: ScrubStatus | None = None
        error: Failure | None = None
        try:
            async with at_once:
                progress = await scrub(
                    broker.address,
                    begin=begin,
                    full_rate=full_rate,
                    timeout_seconds=ANSWER_TIMEOUT_SECONDS,
                )
            status = ScrubStatus.model_validate(progress)
        except TidelogError as refusal:
            error = failure_of(refusal)
        except UnreachableError as silence:
            error = unreachable_failure(silence, outcome_unknown=begin)
        return BrokerScrub(broker_id=broker.broker_id, status=status, error=error)

    return list(await asyncio.gather(*(one(broker) for broker in brokers)))
