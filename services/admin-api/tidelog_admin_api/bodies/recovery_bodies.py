"""Bodies of recovery: replicas of partitions without a leader, and consent to a loss."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from tidelog.admin_messages import RecoveredPartition
from tidelog.request_bounds import MAX_ENTRIES_PER_REQUEST, MAX_TOPIC_NAME_LENGTH
from tidelog_admin_api.bodies.base import (
    MAX_INT64,
    AnswerBody,
    BrokerId,
    Integer,
    PartitionNumber,
    RequestBody,
    TopicName,
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
    """One replica of a partition without a leader, as far as it is known."""

    broker_id: int
    described: bool = Field(
        description="it runs, and its log is described; otherwise `problem` says why not"
    )
    problem: str
    last_epoch: int = Field(description="of its last batch; -1: its log is empty")
    log_start_offset: int
    log_end_offset: int = Field(description="one past its last offset")
    high_watermark: int | None = Field(
        description="as far as it knew what was committed; null: it did not tell"
    )
    whole: bool = Field(description="in its present life it is known to have lost nothing")
    lost_records: int | None = Field(
        description="how many records that other described replicas hold would be cut if it were "
        "to lead; null: nobody can tell"
    )


class Recovery(AnswerBody):
    """A partition without a leader, and its surviving replicas."""

    topic: str
    topic_id: str
    partition: int
    revision: int = Field(description="as expected_revision of a choice")
    last_known: list[int] = Field(description="brokers last known to hold every committed record")
    waits_for: str = Field(description="what it waits for, while nobody chooses")
    survivors: list[Survivor] = Field(description="one for each replica, in order of preference")


class RecoveryPage(AnswerBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [_RECOVERY], "next_page_token": ""}]}
    )

    items: list[Recovery]
    next_page_token: str = Field(description="empty: this is the last page")


class RecoveryChoice(RequestBody):
    """The replica that becomes the leader of a partition, even if records are lost."""

    partition: PartitionNumber
    broker_id: BrokerId
    expected_revision: Integer = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="as described; refused where the partition has changed since; 0: any",
    )


class RecoverRequest(RequestBody):
    """Consent to the loss of records.

    With neither `partitions` nor `choices` it applies to every partition of the topic that has
    no leader.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "topic": "sea",
                    "choices": [{"partition": 0, "broker_id": 3, "expected_revision": 4711}],
                    "confirm": "sea",
                }
            ]
        }
    )

    topic: TopicName
    partitions: list[PartitionNumber] = Field(
        default_factory=list, max_length=MAX_ENTRIES_PER_REQUEST
    )
    choices: list[RecoveryChoice] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES_PER_REQUEST,
        description="replicas chosen by hand, instead of partitions",
    )
    from_live_replicas: bool = Field(
        default=False,
        description="do not wait for the replicas last known to be in sync: elect the best of "
        "those that are live now",
    )
    confirm: str = Field(
        default="",
        max_length=MAX_TOPIC_NAME_LENGTH,
        description="the topic's name once more, since records may be lost; not asked for in a "
        "dry run",
    )


class RecoveredPartitionResult(AnswerBody):
    partition: int
    error: FailureOf = Field(
        description="null: it has a leader. REQUEST_TIMED_OUT: not yet; the consent stands"
    )


class RecoveryResults(AnswerBody):
    """The result for each partition, or in a dry run the state of each selected partition."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"topic": "sea", "results": [{"partition": 0, "error": None}], "described": []}
            ]
        }
    )

    topic: str
    results: list[RecoveredPartitionResult] = Field(description="empty in a dry run")
    described: list[Recovery] = Field(
        description="of a dry run, which is refused as the request would be: what each choice "
        "would lose; partitions that have a leader are left out, since nothing would be done to "
        "them"
    )

    @property
    def has_failures(self) -> bool:
        return any(result.error is not None for result in self.results)


def recovery_results(topic: str, recovered: Sequence[RecoveredPartition]) -> RecoveryResults:
    return RecoveryResults(
        topic=topic,
        results=[RecoveredPartitionResult.model_validate(one) for one in recovered],
        described=[],
    )
