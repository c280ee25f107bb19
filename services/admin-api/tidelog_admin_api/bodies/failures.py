"""The error of one item in a request about several."""

from __future__ import annotations

from pydantic import Field

from tidelog.errors import TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.base import AnswerBody
from tidelog_admin_api.error_mappings import ERROR_MAPPINGS, unavailable


class Failure(AnswerBody):
    code: str = Field(
        description="name of the error, as in errors.proto", examples=["NOT_ELIGIBLE_LEADER"]
    )
    message: str = Field(
        description="what is wrong and what would be right",
        examples=["broker 3 is not in sync with sea/0; it may lead once it is"],
    )
    grpc_status: str = Field(
        description="name of the gRPC status that means the same", examples=["FAILED_PRECONDITION"]
    )
    fix: str = Field(
        description="what to do", examples=["Choose a replica in sync, or wait until this one is."]
    )
    retriable: bool = Field(description="the same again may succeed", examples=[False])
    outcome_unknown: bool = Field(
        description="nobody knows whether it was carried out", examples=[False]
    )


def failure_of(error: TidelogError | None) -> Failure | None:
    if error is None:
        return None
    mapping = ERROR_MAPPINGS[error.code]
    return Failure(
        code=error.code.name,
        message=error.message,
        grpc_status=mapping.grpc_status,
        fix=mapping.fix,
        retriable=error.retriable,
        outcome_unknown=error.outcome_unknown,
    )


def unreachable_failure(error: UnreachableError, *, outcome_unknown: bool) -> Failure:
    mapping = unavailable()
    return Failure(
        code="UNREACHABLE",
        message=str(error),
        grpc_status=mapping.grpc_status,
        fix=mapping.fix,
        retriable=True,
        outcome_unknown=outcome_unknown,
    )
