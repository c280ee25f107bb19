"""An error as a problem document (RFC 9457), and as the result of one item of a request."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from tidelog.errors import TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.base import AnswerBody, example
from tidelog_admin_api.error_mappings import ERROR_MAPPINGS, unavailable


class FieldError(BaseModel):
    field: str = Field(description="name of the parameter or field, such as `moves[0].topic`")
    message: str


class DamagedOffsets(AnswerBody):
    first_offset: int = Field(description="offset of the first damaged record")
    next_offset: int = Field(description="one past the last damaged record; continue here")


class Problem(BaseModel):
    """An error, sent with the media type application/problem+json.

    `code` and `type` are for programs, `detail` and `fix` for people.
    """

    model_config = example(
        type="urn:tidelog:error:unknown-topic-or-partition",
        title="Unknown topic or partition",
        status=404,
        detail="topic 'sea' does not exist; create it first",
        instance="/v1/topics/sea",
        code="UNKNOWN_TOPIC_OR_PARTITION",
        grpc_status="NOT_FOUND",
        fix="GET /v1/topics lists the topics that exist.",
        retriable=False,
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    )

    type: str = Field(description="urn:tidelog:error: followed by the code in kebab case")
    title: str
    status: int
    detail: str = Field(description="what is wrong, and what would be valid")
    instance: str = Field(description="path of the request")
    code: str = Field(description="name of the error code, of errors.proto or of the gateway")
    grpc_status: str = Field(description="name of the equivalent gRPC status")
    fix: str | None = Field(
        default=None, description="what to do; absent if `detail` itself says what would be valid"
    )
    retriable: bool = Field(description="the same request may succeed later")
    trace_id: str = Field(
        description="id of the trace, in all events of the request and in the gateway's log"
    )
    errors: list[FieldError] | None = Field(
        default=None, description="invalid fields and parameters of the request"
    )
    damaged: DamagedOffsets | None = Field(
        default=None, description="with RECORDS_DAMAGED: the records that cannot be read"
    )


class Failure(AnswerBody):
    code: str = Field(
        description="name of the error code, from errors.proto", examples=["NOT_ELIGIBLE_LEADER"]
    )
    message: str = Field(
        description="what is wrong, and what would be valid",
        examples=["broker 3 is not in sync with sea/0; it may lead once it is"],
    )
    grpc_status: str = Field(
        description="name of the equivalent gRPC status", examples=["FAILED_PRECONDITION"]
    )
    fix: str | None = Field(
        description="what to do; null if `message` itself says what would be valid",
        examples=["Choose an in-sync replica, or wait until this one is."],
    )
    retriable: bool = Field(description="the same request may succeed later", examples=[False])
    outcome_unknown: bool = Field(
        description="the change may have been carried out although the request failed",
        examples=[False],
    )


def failure_of(error: TidelogError | None) -> Failure | None:
    if error is None:
        return None
    mapping = ERROR_MAPPINGS[error.code]
    return Failure(
        code=error.code.name,
        message=error.message,
        grpc_status=mapping.grpc_status,
        fix=mapping.fix or None,
        retriable=error.retriable,
        outcome_unknown=error.outcome_unknown,
    )


# In answers that are built from an object of the client library.
FailureOf = Annotated[Failure | None, BeforeValidator(failure_of)]


def unreachable_failure(error: UnreachableError, *, outcome_unknown: bool) -> Failure:
    mapping = unavailable()
    return Failure(
        code="UNREACHABLE",
        message=str(error),
        grpc_status=mapping.grpc_status,
        fix=mapping.fix or None,
        retriable=True,
        outcome_unknown=outcome_unknown,
    )
