"""Rejects parts of a request that the operation would ignore.

A misspelled `dry_run`, or an If-Match that is not supported, must not lead to an unconditional
change.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, get_args, get_origin

from fastapi import Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams

from tidelog_admin_api import known_names
from tidelog_admin_api.bodies.problem import FieldError
from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.origins import READS
from tidelog_admin_api.preconditions import IF_MATCH
from tidelog_admin_api.problems import ProblemError, invalid, invalid_fields
from tidelog_admin_api.requester import check_named

RESOURCES = "/v1/"
# A longer body is checked in a thread, since the check calls a function for each object.
LONG_BODY_BYTES = 32 << 10
MAX_NAMED = 10


async def reject_unknown(request: Request) -> None:
    """A dependency of all operations below /v1/. Other paths ignore unknown parameters."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not route.path.startswith(RESOURCES):
        return
    declared = get_flat_params(route.dependant)
    known = {
        field.alias: _is_list(field.field_info.annotation)
        for field in declared
        if isinstance(field.field_info, params.Query)
    }
    _reject_unknown(request.query_params, list(known))
    _reject_repeated(request.query_params, [name for name, is_list in known.items() if not is_list])
    if not any(field.alias == IF_MATCH for field in declared):
        _reject_condition(request)
    elif len(request.headers.getlist(IF_MATCH)) > 1:
        raise invalid("If-Match is repeated; give all entity tags in one, separated by commas")
    if route.body_field is None and request.method not in READS:
        _reject_body(await request.body(), known)
    elif route.body_field is not None:
        body = await request.body()
        if len(body) > LONG_BODY_BYTES:
            await asyncio.to_thread(_reject_repeated_fields, body)
        else:
            _reject_repeated_fields(body)
    check_named(request.headers)


def _is_list(annotation: Any) -> bool:
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))


def _reject_unknown(given: Iterable[str], known: list[str]) -> None:
    unknown = [name for name in dict.fromkeys(given) if name not in known][:MAX_NAMED]
    errors = [(name, known_names.unknown("parameter", name, known)) for name in unknown]
    _reject([FieldError(field=name[:100], message=message) for name, message in errors])


def _reject_repeated(given: QueryParams, single: Iterable[str]) -> None:
    """Rejects repeated parameters: only one of the values would be used."""
    repeated = [name for name in single if len(given.getlist(name)) > 1]
    message = "is repeated, but accepts one value; give it once"
    _reject([FieldError(field=name, message=message) for name in repeated])


def _reject_body(body: bytes, parameters: Collection[str]) -> None:
    """Rejects a body of an operation without one, except null and {}."""
    if not body.strip():
        return
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = body
    if content is None or content == {}:
        return
    names = list(content)[:MAX_NAMED] if isinstance(content, dict) else []
    _reject([FieldError(field=name[:100], message=_no_field(name, parameters)) for name in names])
    raise invalid("this operation has no body; remove it")


def _reject_repeated_fields(body: bytes) -> None:
    """Rejects repeated fields: only the last would be used. Ignores invalid JSON."""
    with suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=_once_each)


def _once_each(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(fields)
    if len(known) < len(fields):
        names = Counter(name for name, _ in fields)
        message = "is repeated; give it once"
        _reject([FieldError(field=n[:100], message=message) for n in names if names[n] > 1])
    return known


def _no_field(name: str, parameters: Collection[str]) -> str:
    if name in parameters:
        return f"this operation has no body; give it in the query, as ?{name}=…"
    return "this operation has no body; remove the field"


def _reject(errors: list[FieldError]) -> None:
    if errors:
        raise invalid_fields(errors)


def _reject_condition(request: Request) -> None:
    """Rejects If-Match if the resource has no entity tag (RFC 9110, section 13.1.1)."""
    condition = request.headers.get(IF_MATCH)
    if condition is None or condition.strip() == "*" or request.method in READS:
        return
    raise ProblemError(
        "NO_ENTITY_TAG",
        ErrorMapping(
            HTTPStatus.PRECONDITION_FAILED,
            "FAILED_PRECONDITION",
            "Omit If-Match and check a dry run first. If the body accepts expected revisions, ids "
            "or replicas, set those.",
        ),
        f"If-Match: {condition[:100]} cannot match: {request.method} {request.url.path} changes no "
        "resource that has an entity tag",
    )
