"""What is wrong with one of several things that a request was about."""

from __future__ import annotations

from pydantic import Field

from tidelog.errors import TidelogError
from tidelog_admin_api.bodies.base import AnswerBody


class Failure(AnswerBody):
    code: str = Field(
        description="name of the error, as in errors.proto", examples=["NOT_ELIGIBLE_LEADER"]
    )
    message: str = Field(
        description="what is wrong and what would be right",
        examples=["broker 3 is not in sync with sea/0; it may lead once it is"],
    )
    retriable: bool = Field(description="the same again may succeed", examples=[False])
    outcome_unknown: bool = Field(
        description="nobody knows whether it was carried out", examples=[False]
    )


def failure_of(error: TidelogError | None) -> Failure | None:
    if error is None:
        return None
    return Failure(
        code=error.code.name,
        message=error.message,
        retriable=error.retriable,
        outcome_unknown=error.outcome_unknown,
    )
