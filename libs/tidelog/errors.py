"""Errors by name, and which of them a retry may mend.

`ErrorCode` mirrors `tidelog.v1.ErrorCode`, so that cores raise and compare codes
without generated code; a contract test keeps the two equal. Services raise
`TidelogError`; it becomes a wire `Error` only at the edge.
"""

from __future__ import annotations

import enum

from tidelog.model import LeaderHint


class ErrorCode(enum.IntEnum):
    """`errors.proto` documents each."""

    INTERNAL = 1
    INVALID_REQUEST = 2
    REQUEST_TIMED_OUT = 3
    UNKNOWN_TOPIC_OR_PARTITION = 10
    UNKNOWN_TOPIC_ID = 11
    NOT_LEADER = 12
    LEADER_NOT_AVAILABLE = 13
    FENCED_LEADER_EPOCH = 14
    UNKNOWN_LEADER_EPOCH = 15
    LEADER_CHANGED = 16
    NOT_ENOUGH_REPLICAS = 20
    OFFSET_NOT_AVAILABLE = 21
    OFFSET_OUT_OF_RANGE = 22
    BATCH_TOO_LARGE = 30
    CORRUPT_BATCH = 31
    INVALID_BATCH = 32
    OUT_OF_ORDER_SEQUENCE = 33
    DUPLICATE_SEQUENCE = 34
    FENCED_PRODUCER_EPOCH = 35
    UNKNOWN_PRODUCER_ID = 36
    STORAGE_ERROR = 40
    INVALID_TOPIC_NAME = 50
    TOPIC_ALREADY_EXISTS = 51
    INVALID_PARTITION_COUNT = 52
    INVALID_REPLICATION_FACTOR = 53
    INVALID_CONFIG = 54
    TOPIC_BEING_DELETED = 55
    INVALID_ASSIGNMENT = 56
    UNKNOWN_BROKER = 57
    NOT_ENOUGH_BROKERS = 58
    NOT_CONFIRMED = 59
    NOT_CONTROLLER = 60
    STALE_CONTROLLER_EPOCH = 61
    STALE_BROKER_EPOCH = 62
    METADATA_STORE_UNAVAILABLE = 63
    FETCH_SESSION_INVALID = 64
    REVISION_CONFLICT = 70
    UNKNOWN_OPERATION = 71
    OPERATION_ID_IN_USE = 72
    OPERATION_ENDED = 73
    PARTITION_BUSY = 74
    NOT_ELIGIBLE_LEADER = 75


RETRIABLE = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_CHANGED,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.CORRUPT_BATCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.STORAGE_ERROR,
        ErrorCode.TOPIC_BEING_DELETED,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.METADATA_STORE_UNAVAILABLE,
        ErrorCode.FETCH_SESSION_INVALID,
    }
)

# Retriable of a broker, which may not know yet; from a controller, and from brokers that were
# asked again, they are the answer.
FINAL_ANSWERS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

# After these a client asks for fresh metadata before it tries again.
STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_CHANGED,
        ErrorCode.STORAGE_ERROR,
    }
)

# After these nobody knows whether the records were appended.
OUTCOME_UNKNOWN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_CHANGED})


class TidelogError(Exception):
    """A refusal with its code. `str(error)` says what is wrong and what would be right."""

    def __init__(self, code: ErrorCode, message: str, leader: LeaderHint | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.leader = leader

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE

    @property
    def outcome_unknown(self) -> bool:
        return self.code in OUTCOME_UNKNOWN


def unknown_topic(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} does not exist; create it first, or correct the name: the topics that "
        "there are can be listed",
    )


def unknown_partition(topic: str, partition: int, partitions: int) -> TidelogError:
    """`partitions`: how many the topic has."""
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"partition {partition} of topic {topic!r} does not exist; its partitions are 0 to "
        f"{partitions - 1}",
    )
