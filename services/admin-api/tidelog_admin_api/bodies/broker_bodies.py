"""Bodies of brokers: their load, maintenance, restart check and changes."""

from __future__ import annotations

from pydantic import Field
from pydantic.config import JsonDict

from tidelog.phrases import PREFERRED_RETURN
from tidelog_admin_api.bodies.base import (
    NEXT_PAGE_TOKEN,
    AnswerBody,
    BrokerId,
    Page,
    RequestBody,
    documented,
    example,
)
from tidelog_admin_api.bodies.leader_bodies import LeaderResult
from tidelog_admin_api.bodies.operation_bodies import OperationRequest

MAX_BROKERS = 1_000

_LOAD: JsonDict = {
    "broker_id": 1,
    "status": "running",
    "address": "127.0.0.1:7501",
    "rack": "a",
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


class BrokerLoad(AnswerBody):
    broker_id: int
    status: str = Field(description="running, stopping or gone")
    address: str = Field(description="host:port; of a broker that is gone, the last known one")
    rack: str = Field(description="empty: none")
    maintenance: bool
    removed: bool = Field(description="true: the broker gets no new replicas")
    not_added: bool = Field(
        description="true: only registered; plans move nothing to the broker until it is added"
    )
    replicas: int
    leaders: int
    preferred_leaders: int = Field(description="partitions whose preferred replica the broker has")
    out_of_sync: int = Field(description="number of its replicas that are not in sync")
    moves_in: int = Field(description="active moves that add replicas to the broker")
    moves_out: int = Field(description="active moves that take replicas off the broker")
    gone_at_ms: int = Field(
        description="when the broker was found to be gone, in milliseconds since 1970; 0: it is "
        "not gone, or the time is not known"
    )


class Broker(BrokerLoad):
    model_config = example(**_LOAD, broker_epoch=17)

    broker_epoch: int = Field(description="epoch of the registration; 0: the broker is gone")


class BrokerPage(Page[Broker]):
    model_config = example(items=[{**_LOAD, "broker_epoch": 17}], next_page_token="")


class BrokerProcess(AnswerBody):
    """The broker process, as the broker itself reports it."""

    version: str
    started_at_ms: int = Field(description="milliseconds since 1970")
    state: str
    starting: bool = Field(description="true: some replicas do not lead or follow yet")
    start_phase: str = Field(description="current phase of the start; empty: the start is complete")
    disk_free_bytes: int | None = Field(
        description="free space on the file system of the data directory; null: not known"
    )
    move_bytes_per_second: int | None = Field(
        description="effective throttle of moves, in bytes per second; null: no throttle"
    )


class BrokerWithProcess(Broker):
    model_config = example(
        **_LOAD,
        broker_epoch=17,
        process={
            "version": "0.1.0",
            "started_at_ms": 1_767_225_600_000,
            "state": "running",
            "starting": False,
            "start_phase": "",
            "disk_free_bytes": 53_687_091_200,
            "move_bytes_per_second": None,
        },
        problem="",
    )

    process: BrokerProcess | None = Field(description="null: the broker did not answer")
    problem: str = Field(description="why the broker did not answer; empty: it answered")


class RestartFinding(AnswerBody):
    topic: str
    partition: int
    effect: str = Field(description="unavailable, under_min_isr, last_replica or leader_moves")
    reason: str = Field(description="cause of the effect, and how to avoid it")


class RestartCheckPage(AnswerBody):
    """Whether a broker can be stopped now, and the partitions that would be affected."""

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

    safe: bool = Field(description="no partition would become unavailable or fall below min ISR")
    unavailable: int = Field(description="partitions that no replica could lead without loss")
    under_min_isr: int = Field(description="partitions that would reject acks=all")
    last_replica: int = Field(description="partitions with one in-sync replica left")
    leader_moves: int = Field(description="partitions that would only change their leader")
    items: list[RestartFinding] = Field(description="affected partitions, the worst effects first")
    next_page_token: str = Field(description=NEXT_PAGE_TOKEN)


class MaintenanceRequest(RequestBody):
    model_config = example(maintenance=True)

    maintenance: bool = Field(
        description="true: the broker keeps its replicas, and leads only partitions that no other "
        f"replica can lead; false: the broker may lead again. {PREFERRED_RETURN} POST "
        "/v1/leaders/elect-preferred does so at once."
    )


class MaintenanceOfSeveralRequest(MaintenanceRequest):
    model_config = example(broker_ids=[1, 2], maintenance=True)

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
    maintenance: bool = Field(description="requested state")
    leaders: list[LeaderResult] = Field(description="partitions whose leadership is transferred")
    leaders_kept: int = Field(
        description="number of partitions that the broker still leads: no other replica can"
    )


class MaintenanceOfSeveral(AnswerBody):
    model_config = example(
        broker_ids=[1, 2],
        maintenance=True,
        leaders=[{"topic": "sea", "partition": 0, "leader_before": 1, "leader": 3, "error": None}],
        leaders_kept=0,
    )

    broker_ids: list[int]
    maintenance: bool = Field(description="requested state")
    leaders: list[LeaderResult] = Field(description="partitions whose leadership is transferred")
    leaders_kept: int = Field(
        description="number of partitions that the brokers still lead: no other replica can"
    )


class BrokersRequest(OperationRequest):
    model_config = example(broker_ids=[4, 5], operation_id="grow-2026-01")

    broker_ids: list[BrokerId] = Field(
        max_length=MAX_BROKERS, json_schema_extra=documented(minItems=1)
    )
