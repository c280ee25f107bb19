"""/v1/gateways: the processes that serve this API."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from tidelog.inspection.gateway_reports import known_gateways, state_of
from tidelog.inspection.model import StateRequest
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.gateways import AnnouncedGateway, GatewayPage
from tidelog_admin_api.dependencies import AskStates
from tidelog_admin_api.paging import PagingQuery, page_of
from tidelog_admin_api.problems import READ_PROBLEMS

# How long a controller may take to answer.
ANSWER_TIMEOUT_MS = 1_000

router = APIRouter(prefix="/v1/gateways", tags=["cluster"])


@router.get("", responses=READ_PROBLEMS)
async def list_gateways(states: AskStates, paging: PagingQuery) -> GatewayPage:
    """Lists gateways that announced themselves within a day, and the clients at their limits.

    They are ordered by address and host. Controllers keep this in memory: one that has just
    started may lack gateways that were silent before.
    """
    told = await states.ask(StateRequest(services_only=True), ANSWER_TIMEOUT_MS)
    if not any(state.controller for state in told.states):
        raise UnreachableError("any controller", "none answers, and only they know of gateways")
    known = known_gateways(told.states)
    page, token = page_of(
        "gateways", known, lambda gateway: (gateway.address, gateway.host), paging
    )
    items = [
        AnnouncedGateway.model_validate({**asdict(gateway), "state": state_of(gateway)})
        for gateway in page
    ]
    return GatewayPage(items=items, next_page_token=token)
