"""Bodies of partitions and their replicas."""

from __future__ import annotations

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from tidelog_admin_api.bodies.base import AnswerBody, Epoch, Leader, example


class PartitionLog(AnswerBody):
    """The partition's log, as its leader reports it."""

    log_start_offset: int
    high_watermark: int = Field(description="what consumers see ends here")
    log_end_offset: int
    size_bytes: int
    hw_stalled_ms: int | None = Field(
        description="since when records wait to be committed; null: none do"
    )
    max_lag_records: int | None = Field(description="of its followers; null: nobody knows")
    max_lag_ms: int | None


class Partition(AnswerBody):
    topic: str
    partition: int
    health: str = Field(description="ok, or what is wrong, the worst first")
    leader: Leader
    leader_epoch: Epoch
    replicas: list[int] = Field(
        description="the first is preferred; while it moves those it began with come first"
    )
    isr: list[int] = Field(description="in sync")
    eligible_leader_replicas: list[int] = Field(
        description="out of sync, and yet known to hold every committed record"
    )
    offline_replicas: list[int]
    min_isr: int = Field(description="the min_insync_replicas in force")
    unclean_leader_epoch: Epoch
    moving_operation: str = Field(description="empty: it does not move")
    adding_replicas: list[int]
    leaving_replicas: list[int]
    log: PartitionLog | None = Field(
        description="null: it was not asked for, or the leader does not answer"
    )


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


class PartitionPage(AnswerBody):
    model_config = example(items=[_PARTITION], next_page_token="")

    items: list[Partition]
    next_page_token: str = Field(description="empty: this is the last page")


class Replica(AnswerBody):
    broker_id: int
    role: str = Field(
        description="leader; follower; none: it has no leader to follow; damaged: out of "
        "service; unknown: its broker does not tell"
    )
    preferred: bool
    in_sync: bool
    moving: str = Field(description="adding or leaving; empty: it stays")
    problem: str = Field(
        description="why it does not tell, takes no records or cannot fetch; empty: it is well"
    )
    leader_epoch: Epoch
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None = Field(description="as far as it knows")
    flushed_offset: int | None = Field(description="up to where its log is on the disk")
    size_bytes: int | None
    lag_records: int | None = Field(description="behind the leader; null: nobody knows")
    lag_bytes: int | None
    lag_ms: int | None = Field(description="age of the oldest record that it does not have")


class PartitionWithReplicas(Partition):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_PARTITION,
                    "revision": 412,
                    "details": [
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
                }
            ]
        }
    )

    revision: int | None = Field(
        description="of the newest decision about it that any replica has taken; null: nobody tells"
    )
    details: list[Replica] = Field(description="each replica, in the order of preference")
