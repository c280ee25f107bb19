"""Bodies of topics: requests, descriptions and results of changes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr
from pydantic.config import JsonDict

from tidelog.request_bounds import MAX_ASSIGNED_PARTITIONS, MAX_ENTRIES_PER_REQUEST
from tidelog_admin_api.bodies.base import (
    MAX_TEXT,
    AnswerBody,
    BrokerId,
    OperationId,
    Page,
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
        raise ValueError("must be a string, an integer, true or false")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ValueError(f"has {len(value)} characters; the maximum is {MAX_TEXT}")
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
        description="replicas of each new partition, the preferred one first; empty: the "
        "controller places the replicas",
        examples=[[[1, 2, 3], [2, 3, 1]]],
    ),
]
PendingBrokers = Annotated[
    list[int],
    Field(description="brokers that have not applied the change in time; they continue"),
]
Warnings = Annotated[
    list[str],
    Field(
        description="sentences for people: what may be lost, and what would prevent it",
    ),
]


def config_text(value: str | int | bool) -> str:
    """Returns the value as the configuration writes it.

    >>> config_text(True), config_text(5), config_text("synced")
    ('true', '5', 'synced')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


class CreateTopicRequest(RequestBody):
    model_config = example(
        topic="sea", partitions=6, replication_factor=3, config={"retention_ms": 86_400_000}
    )

    topic: str = Field(
        max_length=MAX_TEXT,
        description="name of the topic: 1 to 200 characters of [a-zA-Z0-9._-], except . and ..",
        json_schema_extra=documented(minLength=1),
    )
    partitions: Count | None = Field(
        default=None,
        description="1 to 100,000; null: as many as `assignment` has, or 1 without an assignment",
    )
    replication_factor: Count | None = Field(
        default=None,
        description="null: as in `assignment`; without an assignment 3, or the number of brokers "
        "if that is lower",
    )
    config: dict[ConfigKey, ConfigValue] = Field(
        default_factory=dict,
        max_length=MAX_CONFIG_KEYS,
        description="values by key; absent keys have their defaults. GET /v1/topics/{topic} "
        "describes every key",
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
        warnings=[],
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    )

    topic: str
    topic_id: str = Field(description="empty in a dry run")
    partitions: int
    replication_factor: int
    config: dict[str, str]
    pending_brokers: PendingBrokers
    assignment: list[list[int]] = Field(
        description="in a dry run: replicas of each partition; a request with this `assignment` "
        "creates exactly these replicas"
    )
    warnings: Warnings
    trace_id: str = Field(description="carried by every event of the creation")


class TopicHealth(AnswerBody):
    """The health of partitions. One below its min ISR also counts as under-replicated."""

    health: str = Field(description="ok, or the problems, the worst first")
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


class TopicFigures(AnswerBody):
    """Sizes and rates of all partitions together, as brokers reported them."""

    as_of_ms: int = Field(description="time of the reports, in milliseconds since 1970")
    approximate_records: int | None = Field(
        description="offsets from log start to log end of the leaders, which are fewer records if "
        "offsets were skipped; null: no broker reports them"
    )
    leader_bytes: int | None = Field(description="bytes of the leaders' logs; null: not known")
    total_bytes: int | None = Field(
        description="bytes of the logs of all replicas; null: not known"
    )
    partitions_unknown: int = Field(
        description="partitions that records and leader_bytes lack, because no broker reports them"
    )
    replicas_unknown: int = Field(description="replicas that total_bytes lacks")
    records_per_second: float | None = Field(description="written records; null: not measured")
    bytes_per_second: float | None = Field(description="written bytes; null: not measured")
    partitions_unmeasured: int = Field(description="partitions that the rates lack")


_FIGURES: JsonDict = {
    "as_of_ms": 1795320010000,
    "approximate_records": 48210,
    "leader_bytes": 9642000,
    "total_bytes": 28926000,
    "partitions_unknown": 0,
    "replicas_unknown": 0,
    "records_per_second": 118.5,
    "bytes_per_second": 23700.0,
    "partitions_unmeasured": 0,
}
Figures = Annotated[
    TopicFigures | None,
    Field(
        description="from the gateway's memory, some seconds old; null: not measured yet, or no "
        "longer"
    ),
]


class TopicSummary(TopicHealth):
    topic: str
    topic_id: str
    replication_factor: int
    internal: bool = Field(description="whether the cluster itself created the topic")
    config: dict[str, str] = Field(description="values that are set for the topic, by key")
    figures: Figures


class TopicPage(Page[TopicSummary]):
    model_config = example(
        items=[
            {
                "topic": "sea",
                "topic_id": "bS9mZ1hhR0VqT0wzV2Y5dA",
                "replication_factor": 3,
                "internal": False,
                "config": {"retention_ms": "86400000"},
                **_HEALTH,
                "figures": _FIGURES,
            }
        ],
        next_page_token="",
    )


class ConfigEntry(AnswerBody):
    key: str
    value: str = Field(description="effective value; empty: no value, which `description` explains")
    is_set: bool = Field(description="true: set for this topic; false: the default")
    default_value: str
    description: str


class Topic(TopicHealth):
    model_config = example(
        topic="sea",
        topic_id="bS9mZ1hhR0VqT0wzV2Y5dA",
        replication_factor=3,
        config=[
            {
                "key": "retention_ms",
                "value": "86400000",
                "is_set": True,
                "default_value": "604800000",
                "description": "Segments whose youngest record is older are deleted.",
            }
        ],
        revision=412,
        deleting=False,
        partitions_being_removed=0,
        internal=False,
        moving=0,
        **_HEALTH,
        figures=_FIGURES,
    )

    topic: str
    topic_id: str
    replication_factor: int = Field(description="replication factor of new partitions")
    config: list[ConfigEntry] = Field(description="all keys")
    revision: int = Field(description="revision of the topic, the same as in the ETag")
    deleting: bool
    partitions_being_removed: int
    internal: bool = Field(description="whether the cluster itself created the topic")
    moving: int = Field(description="number of partitions that are being moved")
    figures: Figures


class DeletedTopic(AnswerBody):
    model_config = example(
        topic="sea", deleted=True, partitions=None, brokers=[], pending_brokers=[]
    )

    topic: str
    deleted: bool = Field(description="false: this was a dry run")
    partitions: int | None = Field(
        description="in a dry run: number of partitions that would be deleted; otherwise null"
    )
    brokers: list[int] = Field(description="in a dry run: brokers that hold replicas of the topic")
    pending_brokers: PendingBrokers


class ConfigRequest(RequestBody):
    model_config = example(set={"retention_ms": 86_400_000}, unset=["segment_ms"])

    set: dict[ConfigKey, ConfigValue] = Field(
        default_factory=dict,
        max_length=MAX_CONFIG_KEYS,
        description="new values by key; other keys do not change",
    )
    unset: list[ConfigKey] = Field(
        default_factory=list,
        max_length=MAX_CONFIG_KEYS,
        description="keys to reset to their defaults",
    )


class ConfigChange(AnswerBody):
    key: str
    before: str = Field(description="effective value before; empty: no value")
    after: str = Field(description="effective value after; empty: no value")


class AlteredConfig(AnswerBody):
    model_config = example(
        changes=[{"key": "retention_ms", "before": "604800000", "after": "86400000"}],
        revision=413,
        pending_brokers=[],
        warnings=["Records beyond retention_ms=1d will be deleted for good, shortly."],
    )

    changes: list[ConfigChange] = Field(description="empty: the keys already had these values")
    revision: int = Field(description="new revision of the topic, the same as in the ETag")
    pending_brokers: PendingBrokers
    warnings: Warnings


class PartitionCountRequest(RequestBody):
    model_config = example(partitions=12)

    partitions: Count = Field(
        description="new number of partitions. A higher number adds partitions; from then on, "
        "records with a key go to other partitions. A lower number deletes the last partitions "
        "with their data"
    )
    confirm: str = Field(
        default="",
        max_length=MAX_TEXT,
        description="the topic's name, as confirmation that partitions are deleted; not needed "
        "to add partitions",
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
        warnings=[
            "Records with a key go to other partitions from then on, and partitions can only be "
            "removed with their records."
        ],
    )

    topic: str
    partitions: int = Field(description="new number of partitions; in a dry run, the requested one")
    added: int = Field(description="number of added partitions")
    removed: int = Field(description="number of deleted partitions")
    revision: int = Field(description="new revision of the topic, the same as in the ETag")
    pending_brokers: PendingBrokers
    assignment: list[list[int]] = Field(
        description="in a dry run: replicas of each partition that would be added"
    )
    brokers: list[int] = Field(
        description="in a dry run: brokers that hold replicas of partitions that would be deleted"
    )
    warnings: Warnings


class ReplicationFactorRequest(OperationRequest):
    model_config = example(replication_factor=3, operation_id="three-each")

    replication_factor: Count


class FactorOfSeveralRequest(ReplicationFactorRequest):
    model_config = example(topics=["sea", "bay"], replication_factor=3)

    topics: list[TopicName] = Field(
        max_length=MAX_ENTRIES_PER_REQUEST, json_schema_extra=documented(minItems=1)
    )
