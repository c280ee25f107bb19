"""/v1/throttle: the bound on the bytes per second of moves."""

from __future__ import annotations

from fastapi import APIRouter, Response

from tidelog_admin_api.bodies.throttle import Throttle, ThrottleRequest
from tidelog_admin_api.dependencies import AskAdmin
from tidelog_admin_api.parameters import DryRun
from tidelog_admin_api.preconditions import TAGGED, IfMatch, etag, expected_revision
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS

router = APIRouter(prefix="/v1/throttle", tags=["operations"])


@router.get("", responses={**TAGGED, **READ_PROBLEMS})
async def describe_throttle(admin: AskAdmin, response: Response) -> Throttle:
    """Describes the present throttle."""
    throttle = await admin.describe_throttle()
    response.headers["ETag"] = etag(throttle.revision)
    return Throttle.model_validate(throttle)


@router.put("", responses={**TAGGED, **CHANGE_PROBLEMS})
async def set_throttle(
    body: ThrottleRequest,
    admin: AskAdmin,
    response: Response,
    if_match: IfMatch = None,
    dry_run: DryRun = False,
) -> Throttle:
    """Sets the throttle of all moves, also of those under way; it never slows in-sync replicas."""

    async def current() -> int:
        return (await admin.describe_throttle()).revision

    throttle = await admin.set_throttle(
        body.bytes_per_second,
        expected_revision=await expected_revision(if_match, current),
        dry_run=dry_run,
    )
    response.headers["ETag"] = etag(throttle.revision)
    return Throttle.model_validate(throttle)
