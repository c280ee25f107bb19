"""Bodies of the cluster, its overview and its partition map."""

from __future__ import annotations

from pydantic import Field

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
