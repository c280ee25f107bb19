"""Bodies of the cluster: its description, overview, gateways and explanation."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from tidelog_admin_api.bodies.base import (
    AnswerBody,
    Leader,
    Page,
    RequestBody,
    documented,
    example,
    integral,
)
from tidelog_admin_api.bodies.broker_bodies import BrokerLoad

MAX_LEVEL = 10_000
Level = Annotated[int, Field(ge=1, le=MAX_LEVEL), BeforeValidator(integral)]


class Controller(AnswerBody):
    controller_id: int
    address: str
    controller_epoch: int


class ControllerProcess(AnswerBody):
    controller_id: int
    address: str
    started_at_ms: int = Field(description="milliseconds since 1970")
    version: str = Field(description="version of the release; empty: it reports none")


class RegisteredBroker(AnswerBody):
    broker_id: int
    address: str = Field(
        description="host:port; of a broker that is gone, the last known one, or empty if no "
        "controller knows it"
    )
    rack: str = Field(description="empty: none")
    broker_epoch: int = Field(description="epoch of the registration; 0: the broker is gone")
    status: str = Field(description="running, stopping or gone")
    version: str = Field(description="version of the release; empty: it reports none, or gone")
    state: str = Field(
        description="former name of `status`, with the same value, for one release",
        json_schema_extra=documented(deprecated=True),
    )


class Cluster(AnswerBody):
    """The cluster in the metadata of any broker.

    /v1/brokers describes each broker in more detail, as the controller knows it.
    """

    model_config = example(
        cluster_id="n2m0lVsrTM6Wq2Vf8qkz5A",
        controller={"controller_id": 1, "address": "127.0.0.1:7401", "controller_epoch": 3},
        controllers=[
            {
                "controller_id": 1,
                "address": "127.0.0.1:7401",
                "started_at_ms": 1795320000000,
                "version": "0.1.0",
            }
        ],
        brokers=[
            {
                "broker_id": 1,
                "address": "127.0.0.1:7501",
                "rack": "a",
                "broker_epoch": 17,
                "status": "running",
                "version": "0.1.0",
                "state": "running",
            }
        ],
        feature_level=1,
    )

    cluster_id: str
    controller: Controller | None = Field(description="active controller; null: none is known")
    controllers: list[ControllerProcess] = Field(description="live controllers, by id")
    brokers: list[RegisteredBroker] = Field(
        description="registered brokers, and those that are gone but hold replicas, by id"
    )
    feature_level: int = Field(description="0: the answering broker does not report it")


class ProcessVersion(AnswerBody):
    role: str = Field(description="broker or controller")
    id: int
    address: str
    version: str = Field(description="version of the release; empty: it reports none")
    oldest_level: int = Field(description="oldest feature level that it supports")
    newest_level: int = Field(description="newest feature level that it supports")


class FeatureLevel(AnswerBody):
    """The feature level of the cluster. A process that does not support it does not start."""

    model_config = example(
        level=1,
        newest_level=1,
        raisable_level=1,
        revision=3,
        processes=[
            {
                "role": "broker",
                "id": 1,
                "address": "127.0.0.1:7501",
                "version": "0.1.0",
                "oldest_level": 1,
                "newest_level": 1,
            }
        ],
    )

    level: int
    newest_level: int = Field(description="newest level of the active controller's release")
    raisable_level: int = Field(description="highest level that all processes support")
    revision: int = Field(description="revision, the same as in the ETag")
    processes: list[ProcessVersion] = Field(
        description="registered brokers, then controllers, each by id"
    )


class FeatureLevelRequest(RequestBody):
    model_config = example(level=2)

    level: Level = Field(description="level to raise to; a lower one than now is rejected")


class OverviewPart(AnswerBody):
    """The age of one part of the overview."""

    as_of_ms: int = Field(description="last answer, in milliseconds since 1970; 0: no answer yet")
    problem: str = Field(description="why the last refresh failed; empty: it succeeded")


class PartitionCounts(AnswerBody):
    """Counts of partitions. One below its min ISR also counts as under-replicated."""

    topics: int
    partitions: int
    without_leader: int
    below_min_isr: int
    under_replicated: int
    not_led_by_preferred: int
    moving: int


class UnwellPartition(AnswerBody):
    topic: str
    partition: int
    health: str = Field(description="problems of the partition, the worst first")
    leader: Leader
    replicas: list[int]
    isr: list[int]
    min_isr: int


class RunningOperation(AnswerBody):
    operation_id: str
    kind: str
    state: str
    reason: str
    requested_by: str
    requested_at_ms: int
    moves: int
    moves_done: int
    moves_active: int
    replicas_to_add: int
    replicas_added: int
    estimated_end_ms: int = Field(description="milliseconds since 1970; 0: no estimate")
    bytes_to_copy: int
    bytes_copied: int
    bytes_per_second: int = Field(description="recent rate; 0: nothing is copied, or not known")


class FindingSummary(AnswerBody):
    """A finding without its evidence, which /v1/explain has."""

    cause: str = Field(description="name of the cause, for programs")
    severity: str = Field(description="critical, warning or info; info is not a fault")
    summary: str
    next_step: str = Field(description="what to do; empty: nothing")
    topic: str = Field(description="empty: no single topic")
    partition: int = Field(description="-1: no single partition")
    broker: int = Field(description="broker to inspect; -1: none")
    partition_count: int = Field(description="number of affected partitions")


class Overview(AnswerBody):
    """The data of the console's first page.

    The gateway answers from memory. It refreshes the data in the background while clients read
    it.
    """

    model_config = example(
        cluster_id="n2m0lVsrTM6Wq2Vf8qkz5A",
        health="warning",
        controller={"controller_id": 1, "address": "127.0.0.1:7401", "controller_epoch": 3},
        counts={
            "topics": 1,
            "partitions": 6,
            "without_leader": 0,
            "below_min_isr": 0,
            "under_replicated": 2,
            "not_led_by_preferred": 1,
            "moving": 0,
        },
        unwell=[
            {
                "topic": "sea",
                "partition": 3,
                "health": "under-replicated",
                "leader": 1,
                "replicas": [3, 1, 2],
                "isr": [1, 2],
                "min_isr": 2,
            }
        ],
        brokers=[
            {
                "broker_id": 3,
                "status": "gone",
                "address": "127.0.0.1:7503",
                "rack": "c",
                "maintenance": False,
                "removed": False,
                "not_added": False,
                "replicas": 2,
                "leaders": 0,
                "preferred_leaders": 1,
                "out_of_sync": 2,
                "moves_in": 0,
                "moves_out": 0,
                "gone_at_ms": 1795320000000,
            }
        ],
        operations=[],
        findings=[],
        parts={"topics": {"as_of_ms": 1795320001000, "problem": ""}},
    )

    cluster_id: str
    health: str = Field(
        description="ok; warning; critical: partitions are unavailable; unknown: no recent answer"
    )
    controller: Controller | None = Field(description="active controller; null: none is known")
    counts: PartitionCounts
    unwell: list[UnwellPartition] = Field(
        description="unhealthy ones, the worst first, at most 100"
    )
    brokers: list[BrokerLoad]
    operations: list[RunningOperation] = Field(description="operations that have not ended")
    findings: list[FindingSummary] = Field(description="the worst first, at most 100")
    parts: dict[str, OverviewPart] = Field(
        description="age of the parts `cluster`, `topics`, `brokers`, `operations` and `findings`"
    )


# Leader, replicas, ISR. A tuple has no field names, since a map may have thousands of partitions.
MappedPartition = tuple[Leader, list[int], list[int]]


class MappedTopic(AnswerBody):
    topic: str
    partitions: list[MappedPartition] = Field(
        description="for each partition, from 0: its leader (null: none), its replicas and its ISR"
    )


class PartitionMap(AnswerBody):
    """The leader, replicas and ISR of every partition."""

    model_config = example(
        topics=[{"topic": "sea", "partitions": [[1, [1, 2, 3], [1, 2, 3]], [2, [2, 3, 1], [2, 3]]]}]
    )

    topics: list[MappedTopic] = Field(description="all topics except internal ones")


class LimitedClient(AnswerBody):
    address: str
    limit: str = Field(description="name of the limit that the client has reached")
    value: int = Field(description="value of the limit")
    rejected: int = Field(description="rejections since the last minute without any")
    last_ms: int = Field(description="milliseconds since the last rejection")


class ResourcePressure(AnswerBody):
    resource: str = Field(description="open_files, memory, cpu, or connections of one client")
    used: int = Field(
        description="used files, bytes or connections; for the CPU, milliseconds of waiting "
        "within `limit` milliseconds"
    )
    limit: int
    since_ms: int = Field(description="milliseconds since 1970, by the gateway's clock")
    detail: str = Field(description="what uses the resource; empty: not known")


class AnnouncedGateway(AnswerBody):
    address: str = Field(description="host:port at which clients reach the gateway")
    host: str = Field(description="name of its machine or container")
    pid: int
    version: str
    started_at_ms: int = Field(description="milliseconds since 1970")
    last_heard_ms: int = Field(
        description="milliseconds since its last announcement, which it sends every 2 seconds"
    )
    state: str = Field(
        description="alive; silent: no announcement for 10 seconds or longer; stopped: an orderly "
        "stop was announced"
    )
    limited_clients: list[LimitedClient] = Field(
        description="clients rejected within the last minute, the latest first, at most 10"
    )
    pressures: list[ResourcePressure] = Field(description="resources that are short in the gateway")


class GatewayPage(Page[AnnouncedGateway]):
    model_config = example(
        items=[
            {
                "address": "127.0.0.1:7600",
                "host": "gate-1",
                "pid": 4711,
                "version": "0.1.0",
                "started_at_ms": 1795320000000,
                "last_heard_ms": 900,
                "state": "alive",
                "limited_clients": [],
                "pressures": [],
            }
        ],
        next_page_token="",
    )


class Finding(FindingSummary):
    """One problem, its cause and the next step."""

    evidence: list[str]
    partitions: list[str] = Field(description="some of the affected partitions, such as sea/3")
    because: list[str] = Field(description="causes of other findings that lead to this one")


class Explanation(AnswerBody):
    """The findings of explain.

    An empty list means that the services which answered know of no problem.
    """

    model_config = example(
        well=False,
        findings=[
            {
                "cause": "replica_dead",
                "severity": "warning",
                "summary": "broker 2 is gone",
                "evidence": ["its address 127.0.0.1:7502 refuses connections"],
                "next_step": "start broker 2 again",
                "topic": "",
                "partition": -1,
                "broker": 2,
                "partitions": [],
                "partition_count": 0,
                "because": [],
            }
        ],
        asked=["broker-1 at 127.0.0.1:7501", "broker-2 at 127.0.0.1:7502"],
        silent=["broker-2 at 127.0.0.1:7502"],
        listening=["refuses connections"],
    )

    well: bool = Field(description="true: no finding is a fault")
    findings: list[Finding]
    asked: list[str] = Field(description="queried services with their addresses")
    silent: list[str] = Field(description="queried services that did not answer")
    listening: list[str] = Field(description="how each silent service accepts connections")
