"""Bodies of leader elections and leadership transfers."""

from __future__ import annotations

from pydantic import Field

from tidelog.request_bounds import MAX_ENTRIES_PER_REQUEST, MAX_MOVES_PER_REQUEST
from tidelog_admin_api.bodies.base import (
    AnswerBody,
    BrokerId,
    PartitionNumber,
    RequestBody,
    TopicName,
    documented,
    example,
)
from tidelog_admin_api.bodies.problem import FailureOf


class PartitionSelector(RequestBody):
    """Partitions of a topic. An empty `partitions` selects all of them."""

    topic: TopicName
    partitions: list[PartitionNumber] = Field(
        default_factory=list, max_length=MAX_ENTRIES_PER_REQUEST
    )


class ElectPreferredRequest(RequestBody):
    model_config = example(partitions=[{"topic": "sea", "partitions": [0]}])

    partitions: list[PartitionSelector] = Field(
        default_factory=list,
        max_length=MAX_MOVES_PER_REQUEST,
        description="empty: all partitions of all topics",
    )


class LeaderMove(RequestBody):
    """A new leader for one partition.

    `leader` is one of the partition's replicas. It becomes the preferred replica, so that
    automatic balancing keeps it as the leader.
    """

    topic: TopicName
    partition: PartitionNumber
    leader: BrokerId


class MoveLeadersRequest(RequestBody):
    model_config = example(moves=[{"topic": "sea", "partition": 0, "leader": 1}])

    moves: list[LeaderMove] = Field(
        max_length=MAX_MOVES_PER_REQUEST,
        json_schema_extra=documented(minItems=1),
        description="new leaders, at most one for each partition",
    )


class LeaderResult(AnswerBody):
    topic: str
    partition: int
    leader_before: int = Field(description="broker id of the previous leader; -1: none")
    leader: int = Field(description="broker id of the new leader")
    error: FailureOf = Field(
        description="why the new leader does not lead; null: it leads, or in a dry run would lead"
    )


class LeaderResults(AnswerBody):
    model_config = example(
        items=[{"topic": "sea", "partition": 0, "leader_before": 2, "leader": 1, "error": None}]
    )

    items: list[LeaderResult]

    @property
    def has_failures(self) -> bool:
        return any(result.error is not None for result in self.items)
