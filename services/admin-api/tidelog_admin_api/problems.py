"""Every refusal as a problem document (RFC 9457). One table says what each error code is in
HTTP and in gRPC, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.responses import Response

from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError
from tidelog_admin_api.bodies.problem import FieldError, Problem

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
_TYPE = "urn:tidelog:error:"
_LOOK_AGAIN = "Read the thing again, and decide with what it is now."
_WAIT = "Try again in a moment; GET /v1/explain tells what is wrong where it lasts."


class Meaning(NamedTuple):
    """`status`: of HTTP; `grpc_status`: the name of gRPC's."""

    status: HTTPStatus
    grpc_status: str
    fix: str


_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_INVALID, _UNAVAILABLE = HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE
_TIMED_OUT, _UPSTREAM = HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.BAD_GATEWAY


def _invalid(fix: str) -> Meaning:
    return Meaning(_INVALID, "INVALID_ARGUMENT", fix)


def _conflict(fix: str, grpc_status: str = "FAILED_PRECONDITION") -> Meaning:
    return Meaning(_CONFLICT, grpc_status, fix)


def _unavailable(fix: str = _WAIT) -> Meaning:
    return Meaning(_UNAVAILABLE, "UNAVAILABLE", fix)


_IN_DOUBT = (
    "It may have been carried out all the same: look, or send the same request again, with the "
    "same operation_id where it has one."
)
_CONFIG = "GET a topic to see every key with its default and what it does."

MEANINGS: Mapping[ErrorCode, Meaning] = {
    ErrorCode.INTERNAL: Meaning(
        _UPSTREAM, "INTERNAL", "Look at the log of the service that the message names."
    ),
    ErrorCode.INVALID_REQUEST: _invalid("Correct what the message names."),
    ErrorCode.REQUEST_TIMED_OUT: Meaning(_TIMED_OUT, "DEADLINE_EXCEEDED", _IN_DOUBT),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Meaning(
        _NOT_FOUND, "NOT_FOUND", "GET /v1/topics lists the topics that there are."
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: Meaning(_NOT_FOUND, "NOT_FOUND", _LOOK_AGAIN),
    ErrorCode.NOT_LEADER: _unavailable(),
    ErrorCode.LEADER_NOT_AVAILABLE: _unavailable(
        "GET /v1/explain?topic=… tells why nobody leads; GET /v1/recovery what could be done."
    ),
    ErrorCode.FENCED_LEADER_EPOCH: _unavailable(),
    ErrorCode.UNKNOWN_LEADER_EPOCH: _unavailable(),
    ErrorCode.LEADER_CHANGED: Meaning(_TIMED_OUT, "DEADLINE_EXCEEDED", _IN_DOUBT),
    ErrorCode.NOT_ENOUGH_REPLICAS: _unavailable(
        "Bring replicas back; GET /v1/explain?topic=… names those that are missing, and why."
    ),
    ErrorCode.OFFSET_NOT_AVAILABLE: _unavailable(),
    ErrorCode.OFFSET_OUT_OF_RANGE: Meaning(
        _INVALID, "OUT_OF_RANGE", "GET the partition to see where its log begins and ends."
    ),
    ErrorCode.BATCH_TOO_LARGE: Meaning(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "INVALID_ARGUMENT",
        "Send smaller records, or raise the topic's max_batch_bytes.",
    ),
    ErrorCode.CORRUPT_BATCH: Meaning(_UPSTREAM, "DATA_LOSS", "Send it again."),
    ErrorCode.INVALID_BATCH: _invalid("Correct what the message names."),
    ErrorCode.OUT_OF_ORDER_SEQUENCE: _conflict(_WAIT),
    ErrorCode.DUPLICATE_SEQUENCE: _conflict("The records are in the log already."),
    ErrorCode.FENCED_PRODUCER_EPOCH: _conflict("Send it again: the gateway takes a new epoch."),
    ErrorCode.UNKNOWN_PRODUCER_ID: _conflict("Send it again: the gateway takes a new id."),
    ErrorCode.STORAGE_ERROR: _unavailable("Look at the disk of the broker that is named."),
    ErrorCode.INVALID_TOPIC_NAME: _invalid("Choose a name as the message describes."),
    ErrorCode.TOPIC_ALREADY_EXISTS: _conflict(
        "Choose another name, or GET the topic that there is.", "ALREADY_EXISTS"
    ),
    ErrorCode.INVALID_PARTITION_COUNT: _invalid("Ask for a number that the message allows."),
    ErrorCode.INVALID_REPLICATION_FACTOR: _invalid(
        "GET /v1/brokers shows how many brokers take replicas."
    ),
    ErrorCode.INVALID_CONFIG: _invalid(_CONFIG),
    ErrorCode.TOPIC_BEING_DELETED: _conflict("Wait until the topic is gone."),
    ErrorCode.INVALID_ASSIGNMENT: _invalid("Correct the replicas as the message says."),
    ErrorCode.UNKNOWN_BROKER: Meaning(
        _NOT_FOUND, "NOT_FOUND", "GET /v1/brokers lists the brokers that are known."
    ),
    ErrorCode.NOT_ENOUGH_BROKERS: _conflict("Add brokers first, or lower the factor of topics."),
    ErrorCode.NOT_CONFIRMED: _invalid("Name the topic once more as confirm."),
    ErrorCode.NOT_CONTROLLER: _unavailable(),
    ErrorCode.STALE_CONTROLLER_EPOCH: _unavailable(),
    ErrorCode.STALE_BROKER_EPOCH: _unavailable(),
    ErrorCode.METADATA_STORE_UNAVAILABLE: _unavailable(
        "Look whether etcd runs and has a quorum; GET /v1/explain tells who does not reach it."
    ),
    ErrorCode.FETCH_SESSION_INVALID: _unavailable(),
    ErrorCode.REVISION_CONFLICT: Meaning(
        HTTPStatus.PRECONDITION_FAILED, "FAILED_PRECONDITION", _LOOK_AGAIN
    ),
    ErrorCode.UNKNOWN_OPERATION: Meaning(
        _NOT_FOUND, "NOT_FOUND", "GET /v1/operations lists those that are kept."
    ),
    ErrorCode.OPERATION_ID_IN_USE: _conflict("Choose another operation_id.", "ALREADY_EXISTS"),
    ErrorCode.OPERATION_ENDED: _conflict("GET the operation to see how it ended."),
    ErrorCode.PARTITION_BUSY: _conflict(
        "Wait for the operation that is named, or cancel it: POST /v1/operations/{id}/cancel."
    ),
    ErrorCode.NOT_ELIGIBLE_LEADER: _conflict(
        "Choose a replica in sync, or wait until this one is."
    ),
}


class ProblemError(Exception):
    """What the gateway itself refuses."""

    def __init__(
        self,
        code: str,
        meaning: Meaning,
        detail: str,
        errors: Sequence[FieldError] = (),
        *,
        retriable: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.meaning = meaning
        self.detail = detail
        self.errors = tuple(errors)
        self.retriable = retriable
        self.headers = dict(headers or {})


def malformed(detail: str, errors: Sequence[FieldError] = ()) -> ProblemError:
    """Nothing can be read of it, where what is read and is not right is INVALID_REQUEST."""
    meaning = Meaning(
        HTTPStatus.BAD_REQUEST, "INVALID_ARGUMENT", "Correct the form of the request."
    )
    return ProblemError("MALFORMED_REQUEST", meaning, detail, errors)


def invalid(detail: str, errors: Sequence[FieldError] = ()) -> ProblemError:
    meaning = MEANINGS[ErrorCode.INVALID_REQUEST]
    return ProblemError(ErrorCode.INVALID_REQUEST.name, meaning, detail, errors)


def failed_precondition(detail: str) -> ProblemError:
    meaning = MEANINGS[ErrorCode.REVISION_CONFLICT]
    return ProblemError(ErrorCode.REVISION_CONFLICT.name, meaning, detail)


def unavailable(code: str, detail: str, fix: str = _WAIT) -> ProblemError:
    return ProblemError(code, _unavailable(fix), detail, retriable=True)


def too_many(detail: str) -> ProblemError:
    meaning = Meaning(HTTPStatus.TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", "Try again in a moment.")
    return ProblemError("TOO_MANY_REQUESTS", meaning, detail, retriable=True)


def timed_out(detail: str) -> ProblemError:
    meaning = MEANINGS[ErrorCode.REQUEST_TIMED_OUT]
    return ProblemError(ErrorCode.REQUEST_TIMED_OUT.name, meaning, detail, retriable=True)


def unexpected(trace_id: str) -> ProblemError:
    """A fault of the gateway's own, of which its log has the cause."""
    meaning = Meaning(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "INTERNAL",
        f"Look for the line request_failed with trace_id {trace_id} in the gateway's log.",
    )
    return ProblemError("INTERNAL", meaning, "the gateway failed while it answered this request")


def of_error(error: TidelogError, *, is_read: bool = False) -> ProblemError:
    """What the cluster refuses, in its own words. Of a read nothing is left in doubt."""
    retriable = error.retriable and error.code not in FINAL_ANSWERS
    meaning = MEANINGS[error.code]
    if is_read and meaning.fix == _IN_DOUBT:
        meaning = meaning._replace(fix=_WAIT)
    return ProblemError(error.code.name, meaning, error.message, retriable=retriable)


def document(error: ProblemError, instance: str, trace_id: str) -> Problem:
    return Problem(
        type=_TYPE + error.code.lower().replace("_", "-"),
        title=error.code.replace("_", " ").capitalize(),
        status=error.meaning.status,
        detail=error.detail,
        instance=instance,
        code=error.code,
        grpc_status=error.meaning.grpc_status,
        fix=error.meaning.fix,
        retriable=error.retriable,
        trace_id=trace_id,
        errors=list(error.errors) or None,
    )


def response(error: ProblemError, instance: str, trace_id: str) -> Response:
    problem = document(error, instance, trace_id)
    headers = dict(error.headers)
    if error.meaning.status in (_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))
    return Response(_json(problem), error.meaning.status, headers=headers, media_type=MEDIA_TYPE)


def _json(problem: Problem) -> bytes:
    """Names of fields come from the request, and may hold what no UTF-8 has."""
    import json

    return json.dumps(problem.model_dump(exclude_none=True)).encode()


# What operations declare in the OpenAPI document.

_TELLS = {
    400: "The request cannot be read.",
    403: "The page that asks is none of the gateway's own.",
    404: "It does not exist.",
    408: "The body did not come in time.",
    409: "It contradicts how things stand.",
    412: "Somebody has changed it since it was read.",
    413: "The body or a record is too large.",
    415: "The body is not JSON.",
    421: "The gateway does not know the name by which it is asked as its own.",
    422: "A field is not valid.",
    429: "Too many requests at once.",
    500: "A fault of the gateway, of which its log has the cause.",
    502: "A service of the cluster failed.",
    503: "The cluster cannot answer now.",
    504: "The time was up; what was begun goes on by itself.",
}
_OF_READS = (400, 403, 404, 413, 421, 422, 429, 500, 502, 503, 504)
_OF_CHANGES = (400, 403, 404, 408, 409, 412, 413, 415, 421, 422, 429, 500, 502, 503, 504)
_SCHEMA = {"schema": {"$ref": "#/components/schemas/Problem"}}


def _declared(statuses: Sequence[int]) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"description": _TELLS[status], "content": {MEDIA_TYPE: _SCHEMA}}
        for status in statuses
    }


READ_PROBLEMS = _declared(_OF_READS)
CHANGE_PROBLEMS = _declared(_OF_CHANGES)
