"""Bodies of the scrub, the background check of every batch on the disks of brokers."""

from __future__ import annotations

from pydantic import Field
from pydantic.config import JsonDict

from tidelog_admin_api.bodies.base import AnswerBody, BrokerId, Page, RequestBody, example
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
    """The scrub of one broker. Times are milliseconds since 1970; 0: never."""

    enabled: bool = Field(description="whether a pass starts by itself every scrub_period_ms")
    running: bool = Field(description="whether a pass is in progress")
    full_rate: bool = Field(description="whether the pass runs without pauses")
    total_bytes: int = Field(description="size of all logs of the broker")
    pass_began_ms: int = Field(description="start of the pass in progress")
    pass_bytes: int = Field(description="bytes checked in the pass in progress")
    passes: int = Field(description="number of completed passes")
    last_pass_began_ms: int = Field(description="start of the last completed pass")
    last_pass_ended_ms: int = Field(description="end of the last completed pass")
    last_pass_bytes: int = Field(description="bytes checked in the last completed pass")
    bytes_checked: int = Field(description="bytes checked in all passes")
    damage_found: int = Field(description="number of damaged batches found in all passes")
    diverged_ranges: int = Field(
        description="number of offset ranges in which this broker now finds different committed "
        "records on other replicas; /v1/explain names them"
    )


class BrokerScrub(AnswerBody):
    broker_id: int
    status: ScrubStatus | None = Field(description="null: the broker did not answer")
    error: Failure | None = Field(description="why the broker did not answer; null: it answered")


class BrokerScrubPage(Page[BrokerScrub]):
    model_config = example(items=[_ITEM], next_page_token="")


class BrokerScrubs(AnswerBody):
    model_config = example(items=[_ITEM])

    items: list[BrokerScrub]


class ScrubRequest(RequestBody):
    model_config = example(broker_ids=[3], full_rate=True)

    broker_ids: list[BrokerId] = Field(
        default_factory=list, max_length=MAX_BROKERS, description="empty: all running brokers"
    )
    full_rate: bool = Field(
        default=False,
        description="true: as fast as the disk reads; false: at the configured rate",
    )
