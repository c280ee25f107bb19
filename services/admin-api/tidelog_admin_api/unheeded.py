"""What a request says and nobody would heed is refused: a change that was meant as a dry run, or
to rest on what was read, must not be carried out as if nothing had been said."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from http import HTTPStatus

from fastapi import Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute

from tidelog_admin_api.bodies.problem import FieldError
from tidelog_admin_api.origins import READS
from tidelog_admin_api.preconditions import IF_MATCH
from tidelog_admin_api.problems import Meaning, ProblemError, invalid
from tidelog_admin_api.requester import check_named

RESOURCES = "/v1/"
MAX_NAMED = 10


async def refuse_unheeded(request: Request) -> None:
    """A dependency of all operations. Whoever watches the gateway may say what they like."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not route.path.startswith(RESOURCES):
        return
    heeded = get_flat_params(route.dependant)
    known = [field.alias for field in heeded if isinstance(field.field_info, params.Query)]
    _refuse_unknown(request.query_params, known)
    if not any(field.alias == IF_MATCH for field in heeded):
        _refuse_condition(request)
    check_named(request.headers)


def _refuse_unknown(given: Iterable[str], known: list[str]) -> None:
    unknown = [name for name in dict.fromkeys(given) if name not in known][:MAX_NAMED]
    if unknown:
        errors = [FieldError(field=name[:100], message=_hint(name, known)) for name in unknown]
        raise invalid("; ".join(f"{one.field}: {one.message}" for one in errors[:3]), errors)


def _hint(name: str, known: list[str]) -> str:
    close = get_close_matches(name[:100], known, n=1)
    if close:
        return f"no such parameter is known; did you mean {close[0]}?"
    there = f"those known are {', '.join(known)}" if known else "there are none here"
    return f"no such parameter is known; {there}"


def _refuse_condition(request: Request) -> None:
    """What has no entity tag matches none (RFC 9110, section 13.1.1)."""
    said = request.headers.get(IF_MATCH)
    if said is None or said.strip() == "*" or request.method in READS:
        return
    raise ProblemError(
        "NO_ENTITY_TAG",
        Meaning(
            HTTPStatus.PRECONDITION_FAILED,
            "FAILED_PRECONDITION",
            "Leave If-Match out, and look at a dry run first; where the body takes revisions, ids "
            "or replicas as they were read, name them there.",
        ),
        f"If-Match: {said[:100]} cannot hold: {request.method} {request.url.path} changes nothing "
        "that has an entity tag",
    )
