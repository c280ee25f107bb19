"""Bodies of the scrub, the check of all batches on the disks of brokers."""

from __future__ import annotations

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from tidelog_admin_api.bodies.base import AnswerBody, BrokerId, RequestBody
from tidelog_admin_api.bodies.broker_bodies import MAX_BROKERS
from tidelog_admin_api.bodies.problem import Failure

_STATUS: JsonDict = {
    "enabled": True,
    "running": True,
    "full_rate": False,
    "total_bytes": 53_687_091_200,
    "pass_began_ms": 1_767_225_600_000,
    "pass_bytes": 13_421_772_800,
    "passes": 4,
    "last_pass_began_ms": 1_766_620_800_000,
    "last_pass_ended_ms": 1_767_139_200_000,
    "last_pass_bytes": 52_613_349_376,
    "bytes_checked": 223_338_299_392,
    "damage_found": 0,
    "diverged_ranges": 0,
}
_ITEM: JsonDict = {"broker_id": 1, "status": _STATUS, "error": None}


class ScrubStatus(AnswerBody):
    """The scrub of one broker. Times are milliseconds since 1970; 0 means never."""

    enabled: bool = Field(description="passes begin by themselves, one in each scrub_period_ms")
    running: bool = Field(description="a pass is under way")
    full_rate: bool = Field(description="it makes no pauses")
    total_bytes: int = Field(description="of all logs of the broker")
    pass_began_ms: int
    pass_bytes: int = Field(description="checked in the pass that is under way")
    passes: int = Field(description="that came to their end")
    last_pass_began_ms: int = Field(description="of the last pass that came to its end")
    last_pass_ended_ms: int
    last_pass_bytes: int
    bytes_checked: int = Field(description="in all passes")
    damage_found: int = Field(description="damaged batches, in all passes")
    diverged_ranges: int = Field(
        description="of offsets, in which replicas hold different committed records now, as this "
        "broker found; explain names them"
    )


class BrokerScrub(AnswerBody):
    broker_id: int
    status: ScrubStatus | None = Field(description="null: the broker gave no answer")
    error: Failure | None = Field(description="why it gave none; null: it did")


class BrokerScrubPage(AnswerBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [_ITEM], "next_page_token": ""}]}
    )

    items: list[BrokerScrub]
    next_page_token: str = Field(description="empty: this is the last page")


class BrokerScrubs(AnswerBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_ITEM]}]})

    items: list[BrokerScrub]


class ScrubRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"broker_ids": [3], "full_rate": True}]}
    )

    broker_ids: list[BrokerId] = Field(
        default_factory=list, max_length=MAX_BROKERS, description="empty: all that run"
    )
    full_rate: bool = Field(
        default=False, description="without pauses, as fast as the disk reads; false: as configured"
    )
