"""Rejects what a request contains and no operation would use.

A change that was meant as a dry run, or as conditional on a revision, must not be carried out
as if that had not been said.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, get_args, get_origin

from fastapi import Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams

from tidelog_admin_api.bodies.problem import FieldError
from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.origins import READS
from tidelog_admin_api.preconditions import IF_MATCH
from tidelog_admin_api.problems import ProblemError, invalid
from tidelog_admin_api.requester import check_named

RESOURCES = "/v1/"
# A longer body is checked in a thread: the check calls a function for each object.
LONG_BODY_BYTES = 32 << 10
MAX_NAMED = 10


async def reject_unknown(request: Request) -> None:
    """A dependency of all operations below /v1/; other paths, for monitoring, accept anything."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not route.path.startswith(RESOURCES):
        return
    heeded = get_flat_params(route.dependant)
    known = {
        field.alias: _takes_many(field.field_info.annotation)
        for field in heeded
        if isinstance(field.field_info, params.Query)
    }
    _refuse_unknown(request.query_params, list(known))
    _refuse_repeated(request.query_params, [name for name, many in known.items() if not many])
    if not any(field.alias == IF_MATCH for field in heeded):
        _refuse_condition(request)
    elif len(request.headers.getlist(IF_MATCH)) > 1:
        raise invalid("If-Match is there twice; give all entity tags in one, with commas between")
    if route.body_field is None and request.method not in READS:
        _refuse_body(await request.body(), known)
    elif route.body_field is not None:
        body = await request.body()
        if len(body) > LONG_BODY_BYTES:
            await asyncio.to_thread(_refuse_repeated_fields, body)
        else:
            _refuse_repeated_fields(body)
    check_named(request.headers)


def _takes_many(annotation: Any) -> bool:
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))


def _refuse_unknown(given: Iterable[str], known: list[str]) -> None:
    unknown = [name for name in dict.fromkeys(given) if name not in known][:MAX_NAMED]
    _refuse([FieldError(field=name[:100], message=_hint(name, known)) for name in unknown])


def _refuse_repeated(given: QueryParams, single: Iterable[str]) -> None:
    """Rejects repeated parameters: only one of the values would be used."""
    repeated = [name for name in single if len(given.getlist(name)) > 1]
    message = "is given more than once, and takes one value; give the one that is meant"
    _refuse([FieldError(field=name, message=message) for name in repeated])


def _refuse_body(body: bytes, parameters: Collection[str]) -> None:
    """Rejects a body where none is taken; null and {} are accepted."""
    if not body.strip():
        return
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = body
    if said is None or said == {}:
        return
    names = list(said)[:MAX_NAMED] if isinstance(said, dict) else []
    _refuse([FieldError(field=name[:100], message=_no_field(name, parameters)) for name in names])
    raise invalid("there is a body, and none is taken here; leave it out")


def _refuse_repeated_fields(body: bytes) -> None:
    """Rejects repeated fields: only the last would be used. Invalid JSON is reported elsewhere."""
    with suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=_once_each)


def _once_each(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(fields)
    if len(known) < len(fields):
        names = Counter(name for name, _ in fields)
        message = "is there more than once; give the one that is meant"
        _refuse([FieldError(field=n[:100], message=message) for n in names if names[n] > 1])
    return known


def _no_field(name: str, parameters: Collection[str]) -> str:
    if name in parameters:
        return f"no body is taken here; give it in the query, as ?{name}=…"
    return "no body is taken here; leave it out"


def _refuse(errors: list[FieldError]) -> None:
    if errors:
        raise invalid("; ".join(f"{one.field}: {one.message}" for one in errors[:3]), errors)


def _hint(name: str, known: list[str]) -> str:
    close = get_close_matches(name[:100], known, n=1)
    if close:
        return f"no such parameter is known; did you mean {close[0]}?"
    there = f"those known are {', '.join(known)}" if known else "there are none here"
    return f"no such parameter is known; {there}"


def _refuse_condition(request: Request) -> None:
    """Rejects If-Match where the resource has no entity tag (RFC 9110, section 13.1.1)."""
    said = request.headers.get(IF_MATCH)
    if said is None or said.strip() == "*" or request.method in READS:
        return
    raise ProblemError(
        "NO_ENTITY_TAG",
        ErrorMapping(
            HTTPStatus.PRECONDITION_FAILED,
            "FAILED_PRECONDITION",
            "Leave If-Match out, and look at a dry run first; where the body takes revisions, ids "
            "or replicas as they were read, name them there.",
        ),
        f"If-Match: {said[:100]} cannot hold: {request.method} {request.url.path} changes nothing "
        "that has an entity tag",
    )
