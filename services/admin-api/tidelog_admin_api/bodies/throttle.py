"""How fast moves may carry data."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tidelog_admin_api.bodies.base import MAX_INT64, AnswerBody, Integer, RequestBody

_BOUND = (
    "what each broker may send to replicas that are added by moves, and what each may receive as "
    "such; null: without bound"
)


class ThrottleRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"bytes_per_second": 20_000_000}]})

    bytes_per_second: Integer | None = Field(
        ge=0, le=MAX_INT64, description=f"{_BOUND}. At least 1,024"
    )


class Throttle(AnswerBody):
    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={"examples": [{"bytes_per_second": 20_000_000, "revision": 412}]},
    )

    bytes_per_second: int | None = Field(description=_BOUND)
    revision: int = Field(description="as the ETag; 0: it was never set")
