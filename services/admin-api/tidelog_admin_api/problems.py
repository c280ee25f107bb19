"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from tidelog.errors import FINAL_ANSWERS, ErrorCode, RecordsDamagedError, TidelogError
from tidelog_admin_api import error_mappings
from tidelog_admin_api.bodies.base import AnswerBody
from tidelog_admin_api.bodies.problem import DamagedOffsets, FieldError, Problem
from tidelog_admin_api.error_mappings import (
    ERROR_MAPPINGS,
    NO_FIX,
    OUTCOME_UNKNOWN,
    WAIT,
    ErrorMapping,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
_TYPE = "urn:tidelog:error:"


class ProblemError(Exception):
    """An error that the gateway reports as a problem document."""

    def __init__(
        self,
        code: str,
        mapping: ErrorMapping,
        detail: str,
        errors: Sequence[FieldError] = (),
        *,
        retriable: bool = False,
        headers: Mapping[str, str] | None = None,
        damaged: DamagedOffsets | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.mapping = mapping
        self.detail = detail
        self.errors = tuple(errors)
        self.retriable = retriable
        self.headers = dict(headers or {})
        self.damaged = damaged


def unsupported_body(message: str, fix: str) -> ProblemError:
    return ProblemError(
        "UNSUPPORTED_MEDIA_TYPE",
        ErrorMapping(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "INVALID_ARGUMENT", fix),
        message,
    )


def malformed(detail: str, errors: Sequence[FieldError] = ()) -> ProblemError:
    """Returns the error of a request that cannot be parsed. `invalid` is for values."""
    mapping = ErrorMapping(HTTPStatus.BAD_REQUEST, "INVALID_ARGUMENT", NO_FIX)
    return ProblemError("MALFORMED_REQUEST", mapping, detail, errors)


def invalid(detail: str, errors: Sequence[FieldError] = ()) -> ProblemError:
    mapping = ERROR_MAPPINGS[ErrorCode.INVALID_REQUEST]
    return ProblemError(ErrorCode.INVALID_REQUEST.name, mapping, detail, errors)


def invalid_fields(errors: Sequence[FieldError]) -> ProblemError:
    return invalid("; ".join(f"{one.field}: {one.message}" for one in errors[:3]), errors)


def failed_precondition(detail: str) -> ProblemError:
    mapping = ERROR_MAPPINGS[ErrorCode.REVISION_CONFLICT]
    return ProblemError(ErrorCode.REVISION_CONFLICT.name, mapping, detail)


def unavailable(code: str, detail: str, fix: str = WAIT) -> ProblemError:
    return ProblemError(code, error_mappings.unavailable(fix), detail, retriable=True)


def too_many(detail: str) -> ProblemError:
    mapping = ErrorMapping(
        HTTPStatus.TOO_MANY_REQUESTS,
        "RESOURCE_EXHAUSTED",
        "Repeat the request after the seconds of Retry-After. GET /v1/gateways lists the clients "
        "that are at a limit.",
    )
    return ProblemError("TOO_MANY_REQUESTS", mapping, detail, retriable=True)


def too_many_connections(client: str, most: int) -> ProblemError:
    mapping = ErrorMapping(
        HTTPStatus.TOO_MANY_REQUESTS,
        "RESOURCE_EXHAUSTED",
        "Close connections, or raise max_connections_per_client of the gateway.",
    )
    detail = f"client {client} has {most} open connections, the maximum of one address"
    return ProblemError("TOO_MANY_CONNECTIONS", mapping, detail, retriable=True)


def timed_out(detail: str) -> ProblemError:
    mapping = ERROR_MAPPINGS[ErrorCode.REQUEST_TIMED_OUT]
    return ProblemError(ErrorCode.REQUEST_TIMED_OUT.name, mapping, detail, retriable=True)


def unexpected(trace_id: str) -> ProblemError:
    """Returns the error of a fault in the gateway itself, whose cause is in its log."""
    mapping = ErrorMapping(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "INTERNAL",
        f"Find the event request_failed with trace_id {trace_id} in the gateway's log.",
    )
    return ProblemError("INTERNAL", mapping, "the gateway failed to process this request")


def of_error(error: TidelogError, *, is_read: bool = False) -> ProblemError:
    """Returns the problem of a cluster's error. The outcome of a read is never unknown."""
    retriable = error.retriable and error.code not in FINAL_ANSWERS
    mapping = ERROR_MAPPINGS[error.code]
    if mapping.fix == OUTCOME_UNKNOWN and (is_read or not error.outcome_unknown):
        mapping = mapping._replace(fix=WAIT)
    damaged = None
    if isinstance(error, RecordsDamagedError):
        damaged = DamagedOffsets.model_validate(error)
    return ProblemError(
        error.code.name, mapping, error.message, retriable=retriable, damaged=damaged
    )


def document(error: ProblemError, instance: str, trace_id: str) -> Problem:
    return Problem(
        type=_TYPE + error.code.lower().replace("_", "-"),
        title=error.code.replace("_", " ").capitalize(),
        status=error.mapping.status,
        detail=error.detail,
        instance=instance,
        code=error.code,
        grpc_status=error.mapping.grpc_status,
        fix=error.mapping.fix or None,
        retriable=error.retriable,
        trace_id=trace_id,
        errors=list(error.errors) or None,
        damaged=error.damaged,
    )


def response(error: ProblemError, instance: str, trace_id: str) -> Response:
    problem = document(error, instance, trace_id)
    headers = dict(error.headers)
    if error.mapping.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))
    return Response(_json(problem), error.mapping.status, headers=headers, media_type=MEDIA_TYPE)


def _json(problem: Problem) -> bytes:
    """Serializes as ASCII: field names come from the request and may not be valid UTF-8."""
    return json.dumps(problem.model_dump(exclude_none=True)).encode()


# Errors that operations declare in the OpenAPI document.

_DESCRIPTIONS = {
    400: "The request cannot be parsed.",
    403: "The request comes from a page of another origin.",
    404: "The resource does not exist.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the state of the cluster.",
    410: "The records are damaged; `damaged` has the offset to continue from.",
    412: "The resource has changed since it was read.",
    413: "The body or a record is too large.",
    415: "The body is not JSON, or is compressed.",
    421: "The requested host is not a known name of the gateway.",
    422: "A field or parameter is invalid.",
    429: "Too many concurrent requests.",
    431: "The parameters and headers together are too large.",
    500: "The gateway failed; its log has the cause.",
    502: "A service of the cluster failed.",
    503: "The cluster is currently unavailable.",
    504: "The request timed out; a change that was started continues.",
}
_OF_READS = (400, 403, 404, 413, 421, 422, 429, 500, 502, 503, 504)
_OF_CHANGES = (400, 403, 404, 408, 409, 412, 413, 415, 421, 422, 429, 500, 502, 503, 504)
_SCHEMA = {"schema": {"$ref": "#/components/schemas/Problem"}}


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"description": _DESCRIPTIONS[status], "content": {MEDIA_TYPE: _SCHEMA}}
        for status in statuses
    }


def multi_status(model: type[AnswerBody], description: str) -> dict[int | str, dict[str, Any]]:
    """Declares the answer of a change that failed for some of its items."""
    return {HTTPStatus.MULTI_STATUS.value: {"model": model, "description": description}}


READ_PROBLEMS = declared(*_OF_READS)
CHANGE_PROBLEMS = declared(*_OF_CHANGES)
