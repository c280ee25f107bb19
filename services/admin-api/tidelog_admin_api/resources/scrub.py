"""/v1/brokers/scrub: start the check of the disks of brokers, and see its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

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
from tidelog_admin_api.dependencies import AskAdmin, AskScrub, ScrubsBroker
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.parameters import DryRun
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS

# How long each broker may take to answer; it begins a pass and does not wait for its end.
ANSWER_TIMEOUT_SECONDS = 2.0
# Brokers that one request contacts at a time.
MAX_ASKED_AT_ONCE = 32

router = APIRouter(prefix="/v1/brokers", tags=["brokers"])

_NOT_ALL: dict[int | str, dict[str, Any]] = {
    HTTPStatus.MULTI_STATUS.value: {
        "model": BrokerScrubs,
        "description": "Some brokers gave no answer; each item says why.",
    }
}


@router.get("/scrub", responses=READ_PROBLEMS)
async def list_scrubs(admin: AskAdmin, scrub: AskScrub, paging: PagingQuery) -> BrokerScrubPage:
    """Lists the progress and findings of the scrub of each running broker."""
    running = scrubbed_brokers(await admin.describe_brokers(), ())
    page, token = page_of("scrubs", running, lambda broker: (broker.broker_id,), paging)
    items = await _ask(scrub, page, begin=False, full_rate=False)
    return BrokerScrubPage(items=items, next_page_token=token)


@router.post("/scrub", responses=CHANGE_PROBLEMS | _NOT_ALL)
async def begin_scrub(
    admin: AskAdmin,
    scrub: AskScrub,
    answer: Response,
    body: Annotated[
        ScrubRequest | None, Body(examples=[{"broker_ids": [3], "full_rate": True}])
    ] = None,
    dry_run: DryRun = False,
) -> BrokerScrubs:
    """Begins a new scrub pass on some brokers or on all running ones, in place of a present pass.

    A dry run answers with the present progress. Damage is repaired from other replicas; GET
    /v1/explain names what no other replica holds.
    """
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
