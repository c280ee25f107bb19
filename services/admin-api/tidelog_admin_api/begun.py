"""How a request that begins an operation is answered: it goes on by itself, and has an address
of its own."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import Response

from tidelog.client import operations
from tidelog_admin_api.bodies.operations import BegunOperation
from tidelog_admin_api.preconditions import etag
from tidelog_admin_api.problems import CHANGE_PROBLEMS

# Declared by every operation that answers so.
BEGUN_RESPONSES: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK.value: {
        "description": "The plan of a dry run, or an operation that has ended already."
    },
    HTTPStatus.ACCEPTED.value: {
        "model": BegunOperation,
        "description": "It runs; Location names it.",
        "headers": {
            "Location": {
                "description": "where its progress is",
                "schema": {"type": "string"},
                "example": "/v1/operations/grow-2026-01",
            }
        },
    },
    **CHANGE_PROBLEMS,
}


def operation_path(operation_id: str) -> str:
    return f"/v1/operations/{operation_id}"


def begun_answer(begun: operations.BegunOperation, response: Response) -> BegunOperation:
    """200 for a dry run and for what has ended already, else 202."""
    operation = begun.operation
    if operation is not None:
        response.headers["Location"] = operation_path(operation.operation_id)
        response.headers["ETag"] = etag(operation.revision)
        if not operation.has_ended:
            response.status_code = HTTPStatus.ACCEPTED
    return BegunOperation.model_validate(begun)
