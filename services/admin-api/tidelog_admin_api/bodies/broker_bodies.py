"""Bodies of brokers: their load, maintenance, restart check and changes."""

from __future__ import annotations

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from tidelog.phrases import PREFERRED_RETURN
from tidelog_admin_api.bodies.base import (
    AnswerBody,
    BrokerId,
    RequestBody,
    documented,
    example,
)
from tidelog_admin_api.bodies.leader_bodies import LeaderResult
from tidelog_admin_api.bodies.operation_bodies import OperationRequest

MAX_BROKERS = 1_000

_BROKER: JsonDict = {
    "broker_id": 1,
    "status": "running",
    "address": "127.0.0.1:7501",
    "rack": "a",
    "broker_epoch": 17,
    "maintenance": False,
    "removed": False,
    "not_added": False,
    "replicas": 200,
    "leaders": 67,
    "preferred_leaders": 67,
    "out_of_sync": 0,
    "moves_in": 0,
    "moves_out": 0,
    "gone_at_ms": 0,
}


class Broker(AnswerBody):
    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [_BROKER]})

    broker_id: int
    status: str = Field(description="running, stopping or gone")
    address: str = Field(description="host:port; the last known where it is gone")
    rack: str = Field(description="empty: none")
    broker_epoch: int = Field(description="of its registration; 0: it is gone")
    maintenance: bool
    removed: bool = Field(description="takes no new replicas")
    not_added: bool = Field(
        description="it has only registered: plans move nothing there before it is added"
    )
    replicas: int
    leaders: int
    preferred_leaders: int = Field(description="partitions that prefer it as their leader")
    out_of_sync: int = Field(description="replicas of its own that are not in sync")
    moves_in: int = Field(description="moves under way that add replicas here")
    moves_out: int = Field(description="moves under way that take replicas away from here")
    gone_at_ms: int = Field(
        description="milliseconds since 1970, when it was noticed that it is gone; 0: it is "
        "there, or nobody knows"
    )


class BrokerPage(AnswerBody):
    model_config = example(items=[_BROKER], next_page_token="")

    items: list[Broker]
    next_page_token: str = Field(description="empty: this is the last page")


class BrokerProcess(AnswerBody):
    """The broker process, as the broker itself reports it."""

    version: str
    started_at_ms: int = Field(description="milliseconds since 1970")
    state: str
    starting: bool = Field(description="it does not lead or follow all that it should yet")
    start_phase: str = Field(description="what its start is at; empty: it is done")
    disk_free_bytes: int | None = Field(description="of the file system of its data")
    move_bytes_per_second: int | None = Field(description="the bound it keeps; null: none")


_PROCESS: JsonDict = {
    "version": "0.1.0",
    "started_at_ms": 1_767_225_600_000,
    "state": "running",
    "starting": False,
    "start_phase": "",
    "disk_free_bytes": 53_687_091_200,
    "move_bytes_per_second": None,
}


class BrokerWithProcess(Broker):
    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={"examples": [{**_BROKER, "process": _PROCESS, "problem": ""}]},
    )

    process: BrokerProcess | None = Field(description="null: it does not answer")
    problem: str = Field(description="why it does not answer; empty: it does")


class RestartFinding(AnswerBody):
    topic: str
    partition: int
    effect: str = Field(description="unavailable, under_min_isr, last_replica or leader_moves")
    reason: str = Field(description="why, and what would help")


class RestartCheckPage(AnswerBody):
    """Whether a broker can be stopped now, and what would suffer."""

    model_config = example(
        safe=False,
        unavailable=0,
        under_min_isr=1,
        last_replica=0,
        leader_moves=2,
        items=[
            {
                "topic": "sea",
                "partition": 3,
                "effect": "under_min_isr",
                "reason": "1 of 2 replicas would be in sync; wait until broker 3 is",
            }
        ],
        next_page_token="",
    )

    safe: bool = Field(description="nothing becomes unavailable or falls under min ISR")
    unavailable: int = Field(description="partitions that nobody could lead without loss")
    under_min_isr: int = Field(description="partitions that would refuse acks=all")
    last_replica: int = Field(description="partitions that would have one replica in sync")
    leader_moves: int = Field(description="partitions of which only the leader changes")
    items: list[RestartFinding] = Field(description="the worst first")
    next_page_token: str = Field(description="empty: this is the last page")


class MaintenanceRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"maintenance": True}]})

    maintenance: bool = Field(
        description="true: it leads only what no other replica can, and keeps its replicas; "
        f"false: it may lead again. {PREFERRED_RETURN} POST /v1/leaders/elect-preferred does it "
        "at once."
    )


class MaintenanceOfSeveralRequest(MaintenanceRequest):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"broker_ids": [1, 2], "maintenance": True}]}
    )

    broker_ids: list[BrokerId] = Field(
        max_length=MAX_BROKERS, json_schema_extra=documented(minItems=1)
    )


class Maintenance(AnswerBody):
    model_config = example(
        broker_id=1,
        maintenance=True,
        leaders=[{"topic": "sea", "partition": 0, "leader_before": 1, "leader": 2, "error": None}],
        leaders_kept=0,
    )

    broker_id: int
    maintenance: bool = Field(description="as it is now, or in a dry run would be")
    leaders: list[LeaderResult] = Field(description="what it led and somebody else can")
    leaders_kept: int = Field(description="what it goes on leading: nobody else can")


class MaintenanceOfSeveral(AnswerBody):
    model_config = example(
        broker_ids=[1, 2],
        maintenance=True,
        leaders=[{"topic": "sea", "partition": 0, "leader_before": 1, "leader": 3, "error": None}],
        leaders_kept=0,
    )

    broker_ids: list[int]
    maintenance: bool = Field(description="as it is now, or in a dry run would be")
    leaders: list[LeaderResult] = Field(description="what they led and somebody else can")
    leaders_kept: int = Field(description="what they go on leading: nobody else can")


class BrokersRequest(OperationRequest):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"broker_ids": [4, 5], "operation_id": "grow-2026-01"}]}
    )

    broker_ids: list[BrokerId] = Field(
        max_length=MAX_BROKERS, json_schema_extra=documented(minItems=1)
    )
