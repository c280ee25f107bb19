"""Why this broker cannot serve a client's request, and which broker can. Pure."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError, unknown_partition, unknown_topic
from tidelog.model import LeaderHint, TopicPartition
from tidelog_broker.partition.partition import Partition
from tidelog_runtime.metadata.schema import TopicEntry


def not_led_here(
    broker_id: int,
    name: TopicPartition,
    partition: Partition | None,
    topic: TopicEntry | None,
    hint: LeaderHint | None,
) -> TidelogError:
    """`partition`: the replica here, if there is one; `topic` and `hint`: from the metadata."""
    if topic is None and partition is None:
        return unknown_topic(name.topic)
    if topic is not None and not 0 <= name.partition < topic.partitions:
        return unknown_partition(name.topic, name.partition, topic.partitions)
    if partition is not None and not partition.in_service:
        return TidelogError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"broker {broker_id} has found its replica of {name} damaged and does not "
            "lead it; try again with fresh metadata",
        )
    if hint is None:
        return TidelogError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"{name} has no leader now; try again with fresh metadata",
        )
    if hint.broker_id == broker_id:
        return TidelogError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"broker {broker_id} is about to lead {name}; try again",
        )
    return TidelogError(
        ErrorCode.NOT_LEADER,
        f"broker {broker_id} does not lead {name}; broker {hint.broker_id} at {hint.address} does",
        hint,
    )
