"""Internal topics: when they are created, and which changes users may make. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError
from tidelog.state_changes.topic import INTERNAL_PREFIX, STATE_CHANGES_TOPIC, is_internal

STATE_CHANGES_PARTITIONS = 3
STATE_CHANGES_RETENTION_MS = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class InternalTopic:
    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


def state_changes_topic(replication_factor: int) -> InternalTopic:
    return InternalTopic(
        STATE_CHANGES_TOPIC,
        STATE_CHANGES_PARTITIONS,
        replication_factor,
        {"retention_ms": str(STATE_CHANGES_RETENTION_MS)},
    )


def is_due(topic: InternalTopic, known: Collection[str], running_brokers: int) -> bool:
    """Whether the topic has to be created now.

    `known`: the names in use, including topics that are being deleted. The topic waits for as many
    brokers as it has replicas, because it would have to be moved later otherwise.
    """
    return topic.name not in known and running_brokers >= topic.replication_factor


def check_may_create(topic: str) -> None:
    if is_internal(topic):
        raise TidelogError(
            ErrorCode.INVALID_TOPIC_NAME,
            f"topic name {topic} is reserved: names that start with {INTERNAL_PREFIX} are for "
            "internal topics; choose another name",
        )


def check_may_resize(topic: str) -> None:
    if is_internal(topic):
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{topic} is the cluster's own: it is written and read by as many partitions as it "
            "was created with",
        )


def check_may_delete(topic: str, kept: Collection[str]) -> None:
    """Raises INVALID_REQUEST if `topic` is one of `kept`, this cluster's internal topics."""
    if topic in kept:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{topic} is the cluster's own and would be created again; to be rid of it, start "
            "all services with state_changes_topic = false, then delete it",
        )
