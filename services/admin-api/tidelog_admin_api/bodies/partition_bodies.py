"""Bodies of partitions and their replicas."""

from __future__ import annotations

from pydantic import Field
from pydantic.config import JsonDict

from tidelog_admin_api.bodies.base import AnswerBody, Epoch, Leader, Page, example


class PartitionLog(AnswerBody):
    """The partition's log, as its leader reports it."""

    log_start_offset: int
    high_watermark: int = Field(description="offset at which committed records end")
    log_end_offset: int
    size_bytes: int
    hw_stalled_ms: int | None = Field(
        description="milliseconds that records have waited to be committed; null: no record waits"
    )
    max_lag_records: int | None = Field(description="largest lag of a follower; null: not known")
    max_lag_ms: int | None = Field(description="largest lag of a follower; null: not known")


class Partition(AnswerBody):
    topic: str
    partition: int
    health: str = Field(description="ok, or the problems of the partition, the worst first")
    leader: Leader
    leader_epoch: Epoch
    replicas: list[int] = Field(
        description="assigned replicas, the preferred one first; in a move the original ones first"
    )
    isr: list[int] = Field(description="in-sync replicas")
    eligible_leader_replicas: list[int] = Field(
        description="replicas outside the ISR that still hold every committed record"
    )
    offline_replicas: list[int]
    min_isr: int = Field(description="effective min_insync_replicas")
    unclean_leader_epoch: Epoch = Field(
        description="epoch of the last unclean election; null: none"
    )
    moving_operation: str = Field(description="id of the moving operation; empty: none")
    adding_replicas: list[int] = Field(description="replicas that the move adds")
    leaving_replicas: list[int] = Field(description="replicas that the move removes")
    log: PartitionLog | None = Field(description="null: not requested, or the leader is silent")


_PARTITION: JsonDict = {
    "topic": "sea",
    "partition": 3,
    "health": "ok",
    "leader": 1,
    "leader_epoch": 4,
    "replicas": [1, 2, 3],
    "isr": [1, 2, 3],
    "eligible_leader_replicas": [],
    "offline_replicas": [],
    "min_isr": 2,
    "unclean_leader_epoch": None,
    "moving_operation": "",
    "adding_replicas": [],
    "leaving_replicas": [],
    "log": {
        "log_start_offset": 0,
        "high_watermark": 1_200,
        "log_end_offset": 1_203,
        "size_bytes": 65_536,
        "hw_stalled_ms": None,
        "max_lag_records": 3,
        "max_lag_ms": 2,
    },
}


class PartitionPage(Page[Partition]):
    model_config = example(items=[_PARTITION], next_page_token="")


class Replica(AnswerBody):
    broker_id: int
    role: str = Field(
        description="leader; follower; none: the partition has no leader to follow; damaged: out "
        "of service; unknown: the broker does not report the replica"
    )
    preferred: bool
    in_sync: bool
    moving: str = Field(description="adding or leaving; empty: the move keeps the replica")
    problem: str = Field(
        description="why the replica is not reported, rejects records or cannot fetch; empty: none"
    )
    leader_epoch: Epoch
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None = Field(description="high watermark that the replica knows")
    flushed_offset: int | None = Field(description="offset up to which the log is on the disk")
    size_bytes: int | None
    lag_records: int | None = Field(description="records that the replica lacks; null: not known")
    lag_bytes: int | None = Field(description="bytes that the replica lacks; null: not known")
    lag_ms: int | None = Field(
        description="age of the oldest record that the replica lacks; null: not known"
    )


class PartitionWithReplicas(Partition):
    model_config = example(
        **_PARTITION,
        revision=412,
        details=[
            {
                "broker_id": 1,
                "role": "leader",
                "preferred": True,
                "in_sync": True,
                "moving": "",
                "problem": "",
                "leader_epoch": 4,
                "log_start_offset": 0,
                "log_end_offset": 1_203,
                "high_watermark": 1_200,
                "flushed_offset": 1_000,
                "size_bytes": 65_536,
                "lag_records": 0,
                "lag_bytes": 0,
                "lag_ms": 0,
            }
        ],
    )

    revision: int | None = Field(
        description="revision of the newest decision about the partition that any replica has "
        "applied; null: no replica reports one"
    )
    details: list[Replica] = Field(description="all replicas in order of preference")
