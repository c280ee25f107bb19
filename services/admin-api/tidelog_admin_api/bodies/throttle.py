"""Bodies of the throttle, the bound on the bytes per second of moves."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from tidelog_admin_api.bodies.base import (
    MAX_INT64,
    MIN_INT64,
    AnswerBody,
    RequestBody,
    documented,
    whole,
)

_BOUND = (
    "what each broker may send to replicas that are added by moves, and what each may receive as "
    "such; null: without bound"
)


Rate = Annotated[
    int,
    Field(ge=MIN_INT64, le=MAX_INT64, json_schema_extra=documented(minimum=1_024)),
    BeforeValidator(whole),
]


class ThrottleRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"bytes_per_second": 20_000_000}]})

    bytes_per_second: Rate | None = Field(description=f"{_BOUND}. At least 1,024")


class Throttle(AnswerBody):
    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={"examples": [{"bytes_per_second": 20_000_000, "revision": 412}]},
    )

    bytes_per_second: int | None = Field(description=_BOUND)
    revision: int = Field(description="as the ETag; 0: it was never set")
