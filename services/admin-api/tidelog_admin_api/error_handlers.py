"""Converts all exceptions of operations to problem documents."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from tidelog.errors import TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api import known_names
from tidelog_admin_api.bodies.problem import FieldError
from tidelog_admin_api.error_mappings import NO_FIX, ErrorMapping
from tidelog_admin_api.origins import READS
from tidelog_admin_api.problems import (
    ProblemError,
    invalid,
    invalid_fields,
    malformed,
    of_error,
    response,
    unavailable,
    unsupported_body,
)
from tidelog_admin_api.requester import trace_id

MAX_FIELD_ERRORS = 100
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PLACES = ("path", "query", "header", "cookie", "body")
_NOT_AN_OBJECT = frozenset({"dict_type", "model_attributes_type", "model_type"})


def install(app: FastAPI) -> None:
    app.add_exception_handler(TidelogError, _tidelog_error)
    app.add_exception_handler(UnreachableError, _unreachable)
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)


def validation_problem(
    errors: Sequence[Mapping[str, Any]], content_type: str, body: Any = None
) -> ProblemError:
    """Returns the problem for validation errors of FastAPI.

    - `errors`: their `loc` begins with "path", "query", "header", "cookie" or "body"
    - `body`: the type annotation of the operation's body; None: it has none
    """
    first = errors[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "unexpected end")
        return malformed(f"the body is not JSON: {reason} at character {first['loc'][-1]}")
    if tuple(first["loc"]) == ("body",) and first["type"] in _NOT_AN_OBJECT:
        if "json" not in content_type:
            return unsupported_body(
                f"the media type of the body is {content_type[:100] or '(none)'} and must be "
                "application/json",
                "Send JSON with Content-Type: application/json.",
            )
        return invalid("the body must be a JSON object")
    fields = [
        FieldError(field=_field(error["loc"]), message=_message(error, body))
        for error in errors[:MAX_FIELD_ERRORS]
    ]
    return invalid_fields(fields)


def _field(location: Sequence[str | int]) -> str:
    """Returns the path of a field.

    >>> _field(("body", "moves", 0, "topic"))
    'moves[0].topic'
    """
    parts = list(location)
    if len(parts) > 1 and parts[0] in _PLACES:
        parts = parts[1:]
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _message(error: Mapping[str, Any], body: Any) -> str:
    if error["type"] == "missing":
        return "is required and missing"
    if error["type"] == "extra_forbidden":
        _, *outer, name = error["loc"]
        return known_names.unknown("field", str(name), known_names.fields_at(body, outer))
    if error["type"] == "too_long":
        most = error["ctx"]["max_length"]
        return f"has {len(error['input'])} entries; a request has at most {most}: send fewer"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _answer(request: Request, error: ProblemError) -> Response:
    return response(error, request.url.path, trace_id(request.scope))


async def _tidelog_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TidelogError)
    return _answer(request, of_error(error, is_read=request.method in READS))


async def _unreachable(request: Request, error: Exception) -> Response:
    return _answer(request, unavailable("UNREACHABLE", str(error)))


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return _answer(request, error)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    content_type = request.headers.get("content-type", "")
    route = request.scope.get("route")
    field = route.body_field if isinstance(route, APIRoute) else None
    body = None if field is None else field.field_info.annotation
    return _answer(request, validation_problem(error.errors(), content_type, body))


async def _http_error(request: Request, error: Exception) -> Response:
    """Converts errors of the framework. While it reads a body, it hides causes in `__cause__`."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ProblemError):
        return _answer(request, error.__cause__)
    if isinstance(error.__cause__, RecursionError):
        return _answer(request, malformed("the body is nested too deeply; nest it less"))
    if isinstance(error.__cause__, ValueError) and "integer string" in str(error.__cause__):
        digits = sys.get_int_max_str_digits()
        return _answer(
            request,
            malformed(f"the body has a number of more than {digits} digits; send it as a string"),
        )
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _answer(request, _no_method(request))
    return _answer(request, http_problem(error, request.url.path))


def _no_method(request: Request) -> ProblemError:
    """Returns the error with all methods of the path. The framework names those of one route."""

    def is_allowed(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    allowed = ", ".join(filter(is_allowed, _METHODS))
    return ProblemError(
        "METHOD_NOT_ALLOWED",
        ErrorMapping(HTTPStatus.METHOD_NOT_ALLOWED, "UNIMPLEMENTED", f"Use one of: {allowed}."),
        f"{request.url.path} does not support {request.method}; it supports {allowed}",
        headers={"Allow": allowed},
    )


def http_problem(error: HTTPException, path: str) -> ProblemError:
    headers = dict(error.headers or {})
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            mapping = ErrorMapping(
                HTTPStatus.NOT_FOUND, "NOT_FOUND", "GET /openapi.json lists all resources."
            )
            return ProblemError("NO_SUCH_RESOURCE", mapping, f"{path} does not exist")
        case HTTPStatus.BAD_REQUEST:
            return malformed(f"the request cannot be parsed: {error.detail}")
        case status:
            name = HTTPStatus(status)
            mapping = ErrorMapping(name, "UNKNOWN", NO_FIX)
            return ProblemError(
                name.name, mapping, str(error.detail or name.description), headers=headers
            )
