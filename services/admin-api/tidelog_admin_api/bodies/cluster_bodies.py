"""Bodies of the cluster: its description, overview, gateways and explanation."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tidelog.inspection.model import Explanation as Explained
from tidelog_admin_api.bodies.base import AnswerBody, Leader, documented, example


class Controller(AnswerBody):
    controller_id: int
    address: str
    controller_epoch: int


class ControllerProcess(AnswerBody):
    controller_id: int
    address: str
    started_at_ms: int = Field(description="wall clock, milliseconds since 1970")


class RegisteredBroker(AnswerBody):
    broker_id: int
    address: str = Field(
        description="host:port; the last known where it is gone, empty where no controller has it"
    )
    rack: str = Field(description="empty: none")
    broker_epoch: int = Field(description="of its registration; 0: it is gone")
    status: str = Field(description="running, stopping or gone")
    state: str = Field(
        description="the former name of status, with the same value, for one release",
        json_schema_extra=documented(deprecated=True),
    )


class Cluster(AnswerBody):
    """The cluster as any broker knows it.

    /v1/brokers has more about each broker, as the controller knows it.
    """

    model_config = example(
        cluster_id="n2m0lVsrTM6Wq2Vf8qkz5A",
        controller={"controller_id": 1, "address": "127.0.0.1:7401", "controller_epoch": 3},
        controllers=[
            {"controller_id": 1, "address": "127.0.0.1:7401", "started_at_ms": 1795320000000}
        ],
        brokers=[
            {
                "broker_id": 1,
                "address": "127.0.0.1:7501",
                "rack": "a",
                "broker_epoch": 17,
                "status": "running",
                "state": "running",
            }
        ],
    )

    cluster_id: str
    controller: Controller | None = Field(description="null: no active one is known")
    controllers: list[ControllerProcess] = Field(description="all that live, by id")
    brokers: list[RegisteredBroker] = Field(description="all that are registered, by id")


class OverviewPart(AnswerBody):
    """The age of one part of the overview."""

    as_of_ms: int = Field(description="wall clock; 0: it was never there")
    problem: str = Field(description="why it is not fresher; empty: it is as fresh as it can be")


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
    health: str = Field(description="what is wrong, the worst first")
    leader: Leader
    replicas: list[int]
    isr: list[int]
    min_isr: int


class BrokerLoad(AnswerBody):
    broker_id: int
    status: str = Field(description="running, stopping or gone")
    address: str
    rack: str
    maintenance: bool
    removed: bool
    not_added: bool = Field(description="it has only registered, and gets no moves until added")
    replicas: int
    leaders: int
    preferred_leaders: int
    out_of_sync: int
    moves_in: int
    moves_out: int
    gone_at_ms: int = Field(description="wall clock; 0: it is there, or nobody knows")


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
    estimated_end_ms: int = Field(description="wall clock; 0: nobody can tell")
    bytes_to_copy: int
    bytes_copied: int
    bytes_per_second: int = Field(description="lately; 0: nothing comes, or nobody can tell")


class FindingSummary(AnswerBody):
    """A finding of explain in short; /v1/explain has the evidence."""

    cause: str
    severity: str
    summary: str
    next_step: str
    topic: str
    partition: int = Field(description="-1: not of one partition alone")
    broker: int = Field(description="-1: not of one broker alone")
    partition_count: int


class Overview(AnswerBody):
    """The console's first page.

    The gateway refreshes it in the background while it is in use, and answers from memory.
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
        description="ok; warning; critical: something is not available; unknown: nobody tells"
    )
    controller: Controller | None
    counts: PartitionCounts
    unwell: list[UnwellPartition] = Field(description="the worst first, at most 100")
    brokers: list[BrokerLoad]
    operations: list[RunningOperation] = Field(description="those that run")
    findings: list[FindingSummary] = Field(description="the worst first, at most 100")
    parts: dict[str, OverviewPart] = Field(
        description="how fresh cluster, topics, brokers, operations and findings are"
    )


# A tuple without field names, since there may be thousands: leader, replicas, ISR.
MappedPartition = tuple[Leader, list[int], list[int]]


class MappedTopic(AnswerBody):
    topic: str
    partitions: list[MappedPartition] = Field(
        description="from partition 0 on, of each: its leader (null: none), its replicas, and "
        "those of them that are in sync"
    )


class PartitionMap(AnswerBody):
    """The leader, replicas and ISR of every partition."""

    model_config = example(
        topics=[{"topic": "sea", "partitions": [[1, [1, 2, 3], [1, 2, 3]], [2, [2, 3, 1], [2, 3]]]}]
    )

    topics: list[MappedTopic] = Field(description="without those that the cluster keeps for itself")


class LimitedClient(AnswerBody):
    address: str
    limit: str = Field(description="name of the limit that rejects its requests or connections")
    value: int = Field(description="what the limit allows")
    rejected: int = Field(description="how many were rejected since there was none for a minute")
    last_ms: int = Field(description="milliseconds since the last of them")


class ResourcePressure(AnswerBody):
    resource: str = Field(description="open_files, memory, cpu, or connections of one client")
    used: int = Field(
        description="files, bytes, connections, or milliseconds of waiting for the CPU in `limit`"
    )
    limit: int
    since_ms: int = Field(description="wall clock of the gateway, milliseconds since 1970")
    detail: str = Field(description="what uses it; empty: not known")


class AnnouncedGateway(AnswerBody):
    address: str = Field(description="host:port at which others reach it")
    host: str = Field(description="its machine or container")
    pid: int
    version: str
    started_at_ms: int = Field(description="wall clock, milliseconds since 1970")
    last_heard_ms: int = Field(
        description="milliseconds since its last announcement, which it sends every 2 seconds"
    )
    state: str = Field(description="alive; silent: for 10 seconds or longer; stopped: in order")
    limited_clients: list[LimitedClient] = Field(
        description="those at a limit of it within the last minute, at most 10, the last one first"
    )
    pressures: list[ResourcePressure] = Field(
        description="resources of which it was short when it was heard last"
    )


class GatewayPage(AnswerBody):
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

    items: list[AnnouncedGateway]
    next_page_token: str = Field(description="empty: this is the last page")


# Severities that count as faults; `info` does not.
_FAULTS = ("critical", "warning")


class Finding(AnswerBody):
    """One problem, its cause and the next step."""

    cause: str = Field(description="a word for programs")
    severity: str = Field(description="critical, warning or info; info is no fault")
    summary: str
    evidence: list[str]
    next_step: str = Field(description="what to do; empty: nothing")
    topic: str = Field(description="empty: of no single topic")
    partition: int = Field(description="-1: of no single partition")
    broker: int = Field(description="the one that is to be looked at; -1: none")
    partitions: list[str] = Field(description="some of them, as sea/3")
    partition_count: int
    because: list[str] = Field(description="causes of other findings that it follows from")


class Explanation(AnswerBody):
    """The findings of explain.

    An empty list means that all is well, as far as the services that answered know.
    """

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "well": False,
                    "findings": [
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
                    "asked": ["broker-1 at 127.0.0.1:7501", "broker-2 at 127.0.0.1:7502"],
                    "silent": ["broker-2 at 127.0.0.1:7502"],
                    "listening": ["refuses connections"],
                }
            ]
        },
    )

    well: bool = Field(description="no finding is a fault")
    findings: list[Finding]
    asked: list[str] = Field(description="services, with their addresses")
    silent: list[str] = Field(description="those of them that gave no answer")
    listening: list[str] = Field(description="of each silent one, how it takes connections")


def explanation(explained: Explained) -> Explanation:
    return Explanation(
        well=not any(finding.severity in _FAULTS for finding in explained.findings),
        findings=[Finding.model_validate(finding) for finding in explained.findings],
        asked=list(explained.asked),
        silent=list(explained.silent),
        listening=list(explained.listening),
    )
