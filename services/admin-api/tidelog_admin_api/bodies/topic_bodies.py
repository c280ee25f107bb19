"""Bodies of topics: requests, descriptions and results of changes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from pydantic.config import JsonDict

from tidelog.request_bounds import MAX_ASSIGNED_PARTITIONS, MAX_ENTRIES_PER_REQUEST
from tidelog_admin_api.bodies.base import (
    MAX_TEXT,
    AnswerBody,
    BrokerId,
    OperationId,
    RequestBody,
    TopicName,
    WireInt,
    documented,
    example,
)
from tidelog_admin_api.bodies.operation_bodies import OperationRequest

MAX_REPLICAS = 1_000
MAX_CONFIG_KEYS = 100


def _config_value(value: object) -> object:
    """Checks the value in one step; a union would report one error for each of its types."""
    if not isinstance(value, str | int):
        raise ValueError("has to be a string, a whole number, true or false")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ValueError(f"has {len(value)} characters, and may have {MAX_TEXT}")
    return value


# Numbers and booleans are converted to the text that the configuration uses.
ConfigValue = Annotated[
    Annotated[StrictStr, Field(max_length=MAX_TEXT)] | StrictBool | StrictInt,
    BeforeValidator(_config_value),
]
ConfigKey = Annotated[str, Field(max_length=MAX_TEXT)]
Count = WireInt
Assignment = Annotated[
    list[Annotated[list[BrokerId], Field(max_length=MAX_REPLICAS)]],
    Field(
        max_length=MAX_ASSIGNED_PARTITIONS,
        description="the replicas of each new partition in order, the first preferred; empty: "
        "the controller places them",
        examples=[[[1, 2, 3], [2, 3, 1]]],
    ),
]
PendingBrokers = Annotated[
    list[int],
    Field(description="brokers that have not done their part in time; they go on by themselves"),
]


def config_text(value: str | int | bool) -> str:
    """Returns the value as the configuration writes it.

    >>> config_text(True), config_text(5), config_text("synced")
    ('true', '5', 'synced')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


class CreateTopicRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "topic": "sea",
                    "partitions": 6,
                    "replication_factor": 3,
                    "config": {"retention_ms": 86_400_000},
                }
            ]
        }
    )

    topic: str = Field(
        max_length=MAX_TEXT,
        description="1 to 200 characters of [a-zA-Z0-9._-], and not . or ..",
        json_schema_extra=documented(minLength=1),
    )
    partitions: Count | None = Field(
        default=None, description="1 to 100,000; null: as many as the assignment has, or 1"
    )
    replication_factor: Count | None = Field(
        default=None,
        description="null: as in the assignment; without one 3, or as many as there are brokers "
        "where those are fewer",
    )
    config: dict[ConfigKey, ConfigValue] = Field(
        default_factory=dict,
        max_length=MAX_CONFIG_KEYS,
        description="what is absent has its default; a topic shows every key and what it does",
    )
    assignment: Assignment = Field(default_factory=list)
    operation_id: OperationId | None = None


class CreatedTopic(AnswerBody):
    model_config = example(
        topic="sea",
        topic_id="bS9mZ1hhR0VqT0wzV2Y5dA",
        partitions=6,
        replication_factor=3,
        config={"retention_ms": "86400000"},
        pending_brokers=[],
        assignment=[],
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    )

    topic: str
    topic_id: str = Field(description="empty in a dry run")
    partitions: int
    replication_factor: int
    config: dict[str, str]
    pending_brokers: PendingBrokers
    assignment: list[list[int]] = Field(
        description="of a dry run: the replicas of each partition; sent as assignment it is what "
        "will be"
    )
    trace_id: str = Field(description="carried by every event of the creation")


class Health(AnswerBody):
    """The health of partitions. One below its min ISR also counts as under-replicated."""

    health: str = Field(description="ok, or what is wrong, the worst first")
    partitions: int
    without_leader: int
    below_min_isr: int
    under_replicated: int


_HEALTH: JsonDict = {
    "health": "ok",
    "partitions": 6,
    "without_leader": 0,
    "below_min_isr": 0,
    "under_replicated": 0,
}


class TopicSummary(Health):
    topic: str
    topic_id: str
    replication_factor: int
    internal: bool = Field(description="the cluster's own")
    config: dict[str, str] = Field(description="what was set for the topic")


class TopicPage(AnswerBody):
    model_config = example(
        items=[
            {
                "topic": "sea",
                "topic_id": "bS9mZ1hhR0VqT0wzV2Y5dA",
                "replication_factor": 3,
                "internal": False,
                "config": {"retention_ms": "86400000"},
                **_HEALTH,
            }
        ],
        next_page_token="",
    )

    items: list[TopicSummary]
    next_page_token: str = Field(description="empty: this is the last page")


class ConfigEntry(AnswerBody):
    key: str
    value: str = Field(description="in force; empty: none, which the description explains")
    is_set: bool = Field(description="set for this topic; otherwise it is the default")
    default_value: str
    description: str


class Topic(Health):
    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "topic": "sea",
                    "topic_id": "bS9mZ1hhR0VqT0wzV2Y5dA",
                    "replication_factor": 3,
                    "config": [
                        {
                            "key": "retention_ms",
                            "value": "86400000",
                            "is_set": True,
                            "default_value": "604800000",
                            "description": "Segments whose youngest record is older are deleted.",
                        }
                    ],
                    "revision": 412,
                    "deleting": False,
                    "partitions_being_removed": 0,
                    "internal": False,
                    "moving": 0,
                    **_HEALTH,
                }
            ]
        },
    )

    topic: str
    topic_id: str
    replication_factor: int = Field(description="of new partitions")
    config: list[ConfigEntry] = Field(description="every key")
    revision: int = Field(description="as the ETag")
    deleting: bool
    partitions_being_removed: int
    internal: bool = Field(description="the cluster's own")
    moving: int = Field(description="partitions that are being moved")


class DeletedTopic(AnswerBody):
    model_config = example(
        topic="sea", deleted=True, partitions=None, brokers=[], pending_brokers=[]
    )

    topic: str
    deleted: bool = Field(description="false: this was a dry run")
    partitions: int | None = Field(description="of a dry run: how many would go")
    brokers: list[int] = Field(description="of a dry run: who holds replicas of it")
    pending_brokers: PendingBrokers


class ConfigRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"set": {"retention_ms": 86_400_000}, "unset": ["segment_ms"]}]
        }
    )

    set: dict[ConfigKey, ConfigValue] = Field(
        default_factory=dict, max_length=MAX_CONFIG_KEYS, description="others stay as they are"
    )
    unset: list[ConfigKey] = Field(
        default_factory=list,
        max_length=MAX_CONFIG_KEYS,
        description="keys that are to have their default again",
    )


class ConfigChange(AnswerBody):
    key: str
    before: str = Field(description="in force; empty: none")
    after: str


class AlteredConfig(AnswerBody):
    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "changes": [
                        {"key": "retention_ms", "before": "604800000", "after": "86400000"}
                    ],
                    "revision": 413,
                    "pending_brokers": [],
                }
            ]
        },
    )

    changes: list[ConfigChange] = Field(description="empty: all was as asked for")
    revision: int = Field(description="of the topic now, as the ETag")
    pending_brokers: PendingBrokers


class PartitionCountRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"partitions": 12}]})

    partitions: Count = Field(
        description="in all. More than there are: new ones are added, and records with a key go "
        "to other partitions from then on. Fewer: the last ones are deleted with their data"
    )
    confirm: str = Field(
        default="",
        max_length=MAX_TEXT,
        description="the topic's name once more, where partitions are to go",
    )
    assignment: Assignment = Field(default_factory=list)


class ResizedTopic(AnswerBody):
    model_config = example(
        topic="sea",
        partitions=12,
        added=6,
        removed=0,
        revision=414,
        pending_brokers=[],
        assignment=[],
        brokers=[],
    )

    topic: str
    partitions: int = Field(description="as many as it has now, or in a dry run would have")
    added: int
    removed: int
    revision: int = Field(description="of the topic now, as the ETag")
    pending_brokers: PendingBrokers
    assignment: list[list[int]] = Field(
        description="of a dry run: the replicas of each partition that would be added"
    )
    brokers: list[int] = Field(
        description="of a dry run: who holds replicas of what would be removed"
    )


class ReplicationFactorRequest(OperationRequest):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"replication_factor": 3, "operation_id": "three-each"}]}
    )

    replication_factor: Count


class FactorOfSeveralRequest(ReplicationFactorRequest):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"topics": ["sea", "bay"], "replication_factor": 3}]}
    )

    topics: list[TopicName] = Field(
        max_length=MAX_ENTRIES_PER_REQUEST, json_schema_extra=documented(minItems=1)
    )
