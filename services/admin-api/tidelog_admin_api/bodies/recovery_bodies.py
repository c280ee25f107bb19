"""Bodies of recovery: replicas of partitions without a leader, and consent to a loss."""

from __future__ import annotations

from pydantic import Field
from pydantic.config import JsonDict

from tidelog.request_bounds import MAX_ENTRIES_PER_REQUEST, MAX_TOPIC_NAME_LENGTH
from tidelog_admin_api.bodies.base import (
    MAX_INT64,
    AnswerBody,
    BrokerId,
    Integer,
    Page,
    PartitionNumber,
    RequestBody,
    TopicName,
    example,
)
from tidelog_admin_api.bodies.problem import FailureOf

_RECOVERY: JsonDict = {
    "topic": "sea",
    "topic_id": "0TQ1sZ0QTeSyBWq3kKMI3Q",
    "partition": 0,
    "revision": 4711,
    "last_known": [1, 2],
    "waits_for": "broker 1 or 2, which may hold committed records that broker 3 lacks",
    "survivors": [
        {
            "broker_id": 3,
            "described": True,
            "problem": "",
            "last_epoch": 4,
            "log_start_offset": 0,
            "log_end_offset": 1200,
            "high_watermark": 1198,
            "whole": True,
            "lost_records": 0,
        }
    ],
}


class Survivor(AnswerBody):
    """The log of one replica of a partition without a leader."""

    broker_id: int
    described: bool = Field(
        description="true: the fields below describe the log; false: `problem` says why they do not"
    )
    problem: str
    last_epoch: int = Field(description="leader epoch of the last batch; -1: the log is empty")
    log_start_offset: int
    log_end_offset: int = Field(description="one past the last offset")
    high_watermark: int | None = Field(
        description="high watermark that the replica knows; null: the broker did not report it"
    )
    whole: bool = Field(
        description="whether the replica is intact: it has lost nothing in this incarnation"
    )
    lost_records: int | None = Field(
        description="records of other described replicas that are lost if this replica "
        "becomes the leader; null: not known"
    )


class Recovery(AnswerBody):
    """A partition without a leader, and the logs of its replicas."""

    topic: str
    topic_id: str
    partition: int
    revision: int = Field(description="the expected_revision of a choice")
    last_known: list[int] = Field(description="brokers last known to hold every committed record")
    waits_for: str = Field(description="what the partition waits for unless a choice is made")
    survivors: list[Survivor] = Field(description="all replicas in order of preference")


class RecoveryPage(Page[Recovery]):
    model_config = example(items=[_RECOVERY], next_page_token="")


class RecoveryChoice(RequestBody):
    """The replica that becomes the leader of a partition, even if records are lost."""

    partition: PartitionNumber
    broker_id: BrokerId
    expected_revision: Integer = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="revision from the description of the partition; the choice is rejected if "
        "the partition has changed since; 0: not checked",
    )


class RecoverRequest(RequestBody):
    """Consent to the loss of records.

    With neither `partitions` nor `choices` it applies to every partition of the topic that has
    no leader.
    """

    model_config = example(
        topic="sea",
        choices=[{"partition": 0, "broker_id": 3, "expected_revision": 4711}],
        confirm="sea",
    )

    topic: TopicName
    partitions: list[PartitionNumber] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES_PER_REQUEST,
        description="partitions whose best surviving replica is elected",
    )
    choices: list[RecoveryChoice] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES_PER_REQUEST,
        description="replicas to elect, in place of `partitions`",
    )
    from_live_replicas: bool = Field(
        default=False,
        description="true: elect the best of the live replicas now, without waiting for the "
        "replicas last known to be in sync",
    )
    confirm: str = Field(
        default="",
        max_length=MAX_TOPIC_NAME_LENGTH,
        description="the topic's name, to confirm a loss of records; not needed in a dry run",
    )


class RecoveredPartitionResult(AnswerBody):
    partition: int
    error: FailureOf = Field(
        description="null: elected. REQUEST_TIMED_OUT: no leader yet; the consent remains in effect"
    )


class RecoveryResults(AnswerBody):
    """The result for each partition, or in a dry run the state of each selected partition."""

    model_config = example(topic="sea", results=[{"partition": 0, "error": None}], described=[])

    topic: str
    results: list[RecoveredPartitionResult] = Field(description="empty in a dry run")
    described: list[Recovery] = Field(
        description="in a dry run: the selected partitions without a leader, and what each choice "
        "would lose. A dry run is rejected for the same reasons as the request"
    )

    @property
    def has_failures(self) -> bool:
        return any(result.error is not None for result in self.results)
