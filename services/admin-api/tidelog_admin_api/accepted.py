"""The answer to a request that starts an operation."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Body, Response

from tidelog import admin_messages
from tidelog_admin_api.bodies.operation_bodies import BegunOperation, OperationRequest
from tidelog_admin_api.preconditions import etag
from tidelog_admin_api.problems import CHANGE_PROBLEMS

# Declared by every route that starts an operation.
ACCEPTED_RESPONSES: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK.value: {
        "description": "The plan of a dry run, or an operation that has already ended."
    },
    HTTPStatus.ACCEPTED.value: {
        "model": BegunOperation,
        "description": "The operation runs; Location names it.",
        "headers": {
            "Location": {
                "description": "path of the operation",
                "schema": {"type": "string"},
                "example": "/v1/operations/grow-2026-01",
            }
        },
    },
    **CHANGE_PROBLEMS,
}
# The body of requests whose fields are all optional. A missing body counts as an empty one.
OptionalRequest = Annotated[
    OperationRequest | None, Body(examples=[{"operation_id": "rebalance-2026-01"}])
]


def accepted_answer(
    accepted: admin_messages.AcceptedOperation, response: Response
) -> BegunOperation:
    """Returns the body and sets the status: 200 for a dry run or an ended operation, else 202."""
    if accepted.operation is not None:
        set_operation_headers(accepted.operation, response)
    return BegunOperation.model_validate(accepted)


def set_operation_headers(operation: admin_messages.Operation, response: Response) -> None:
    """Sets the headers and status of an operation: Location, ETag, and 202 while it runs."""
    response.headers["Location"] = f"/v1/operations/{operation.operation_id}"
    response.headers["ETag"] = etag(operation.revision)
    if not operation.has_ended:
        response.status_code = HTTPStatus.ACCEPTED
