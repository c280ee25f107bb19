"""Errors by code and by class, and which of them may be retried.

`ErrorCode` mirrors `tidelog.v1.ErrorCode`, so that cores raise and compare codes
without generated code; a contract test keeps the two equal. Services raise
`TidelogError`; it becomes a wire `Error` only at the edge.

Each code has a subclass of `TidelogError`. `TidelogError(code, message)` makes an instance of
the code's class, wherever it is raised and whichever service sent it, so that
`except NotLeaderError` and `error.code is ErrorCode.NOT_LEADER` select the same errors.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Self

from tidelog.model import NO_OFFSET, LeaderHint


class ErrorCode(enum.IntEnum):
    """The error codes. `errors.proto` documents each."""

    INTERNAL = 1
    INVALID_REQUEST = 2
    REQUEST_TIMED_OUT = 3
    TOO_MANY_REQUESTS = 4
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
    INVALID_TIMESTAMP = 37
    RECORDS_DAMAGED = 38
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
    UNSUPPORTED_VERSION = 76
    CLIENT_CLOSED = 90
    CLIENT_FORKED = 91


RETRIABLE = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.TOO_MANY_REQUESTS,
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

# Retriable when a broker sends them, since it may not have learned of the topic yet. Final when a
# controller sends them, or brokers after a retry.
FINAL_ANSWERS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

# After these a client fetches fresh metadata before it retries.
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

# After these it is unknown whether the records were appended.
OUTCOME_UNKNOWN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_CHANGED})


class TidelogError(Exception):
    """A rejection with its code. `str(error)` says what is wrong and what would be right.

    - `leader`: the leader that a broker named with NOT_LEADER, where it knew one.
    - `outcome_unknown`: whether the request may have been carried out despite the error. The code
      decides by default (OUTCOME_UNKNOWN); the keyword overrides it.
    """

    _by_code: ClassVar[dict[ErrorCode, type[TidelogError]]] = {}

    def __init_subclass__(cls, *, code: ErrorCode | None = None) -> None:
        """`code`: the code for which `TidelogError` makes this class. A class without a code is
        made by its own name only."""
        super().__init_subclass__()
        if code is not None:
            assert code not in TidelogError._by_code, f"two classes for {code.name}"
            TidelogError._by_code[code] = cls

    def __new__(cls, code: Any = None, *_: Any, **__: Any) -> Self:
        # Only the base class chooses; subclasses have other arguments.
        chosen: Any = TidelogError._by_code.get(code, cls) if cls is TidelogError else cls
        made: Self = super().__new__(chosen)
        return made

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        leader: LeaderHint | None = None,
        *,
        outcome_unknown: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.leader = leader
        self.outcome_unknown = (
            code in OUTCOME_UNKNOWN if outcome_unknown is None else outcome_unknown
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # `args` holds only the message, and subclasses differ in their arguments.
        return _restored, (type(self), self.args), self.__dict__

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


def _restored(kind: type[TidelogError], args: tuple[Any, ...]) -> TidelogError:
    error = kind.__new__(kind)
    error.args = args
    return error


class InternalError(TidelogError, code=ErrorCode.INTERNAL):
    """A fault in a service or in the client; its log has the details."""


class InvalidRequestError(TidelogError, code=ErrorCode.INVALID_REQUEST):
    """An argument is invalid; the message names it."""


class InvalidArgumentError(InvalidRequestError, ValueError):
    """The client rejects an argument at the call; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument has the wrong type."""


class RequestTimedOutError(TidelogError, code=ErrorCode.REQUEST_TIMED_OUT):
    """No answer in time. The request may have been carried out."""


class TooManyRequestsError(TidelogError, code=ErrorCode.TOO_MANY_REQUESTS):
    """The service has reached its limit of requests or connections. Nothing was done; a retry after
    a pause may succeed."""


class UnknownTopicError(TidelogError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """The topic or the partition does not exist."""


class BootstrapUnresolvedError(RequestTimedOutError):
    """No host name of the bootstrap addresses can be resolved, and no broker is known yet."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message, outcome_unknown=False)


class UnknownTopicIdError(UnknownTopicError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """The topic was deleted, and possibly created again with the same name."""


class NotLeaderError(TidelogError, code=ErrorCode.NOT_LEADER):
    """The broker does not lead the partition. Clients follow the leader by themselves."""


class LeaderNotAvailableError(TidelogError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """The partition has no leader now."""


class FencedLeaderEpochError(TidelogError, code=ErrorCode.FENCED_LEADER_EPOCH):
    """The request was meant for an older leader epoch."""


class UnknownLeaderEpochError(TidelogError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    """The request was meant for a leader epoch that the broker has not learned of yet."""


class LeaderChangedError(TidelogError, code=ErrorCode.LEADER_CHANGED):
    """The leader changed before the records were committed; they may be kept or lost."""


class NotEnoughReplicasError(TidelogError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer replicas are in sync than min_insync_replicas; nothing was appended."""


class OffsetNotAvailableError(TidelogError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    """A new leader does not know its high watermark yet."""


class OffsetOutOfRangeError(TidelogError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The offset is below the start of the log or above its end."""


class BatchTooLargeError(TidelogError, code=ErrorCode.BATCH_TOO_LARGE):
    """A record or batch exceeds max_request_bytes or the topic's max_batch_bytes."""


class CorruptBatchError(TidelogError, code=ErrorCode.CORRUPT_BATCH):
    """A batch fails its CRC."""


class InvalidBatchError(TidelogError, code=ErrorCode.INVALID_BATCH):
    """A batch is malformed or breaks a rule of its topic."""


class OutOfOrderSequenceError(TidelogError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE):
    """The sequence of an idempotent producer leaves a gap."""


class DuplicateSequenceError(TidelogError, code=ErrorCode.DUPLICATE_SEQUENCE):
    """The sequence of an idempotent producer was appended before."""


class FencedProducerError(TidelogError, code=ErrorCode.FENCED_PRODUCER_EPOCH):
    """A newer producer holds this producer's name."""


class UnknownProducerError(TidelogError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The leader does not know the producer id."""


class InvalidTimestampError(TidelogError, code=ErrorCode.INVALID_TIMESTAMP):
    """A timestamp lies too far ahead of the leader's clock."""


class RecordsDamagedError(TidelogError, code=ErrorCode.RECORDS_DAMAGED):
    """The records from `first_offset` to `next_offset` (excluded) were damaged on the last disk
    that held them. All others can be read."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        leader: LeaderHint | None = None,
        *,
        first_offset: int = NO_OFFSET,
        next_offset: int = NO_OFFSET,
        outcome_unknown: bool | None = None,
    ) -> None:
        super().__init__(code, message, leader, outcome_unknown=outcome_unknown)
        self.first_offset = first_offset
        self.next_offset = next_offset


class StorageError(TidelogError, code=ErrorCode.STORAGE_ERROR):
    """The broker cannot read or write its disk."""


class InvalidTopicNameError(TidelogError, code=ErrorCode.INVALID_TOPIC_NAME):
    """The topic name is not allowed."""


class TopicAlreadyExistsError(TidelogError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic has this name already."""


class InvalidPartitionCountError(TidelogError, code=ErrorCode.INVALID_PARTITION_COUNT):
    """The number of partitions is out of range."""


class InvalidReplicationFactorError(TidelogError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is below 1 or above the number of live brokers."""


class InvalidConfigError(TidelogError, code=ErrorCode.INVALID_CONFIG):
    """A configuration key does not exist, or its value is out of range."""


class TopicBeingDeletedError(TidelogError, code=ErrorCode.TOPIC_BEING_DELETED):
    """The topic is being deleted."""


class InvalidAssignmentError(TidelogError, code=ErrorCode.INVALID_ASSIGNMENT):
    """A manual replica assignment breaks a rule."""


class UnknownBrokerError(TidelogError, code=ErrorCode.UNKNOWN_BROKER):
    """No broker has this id, or it is in the wrong state for the request."""


class NotEnoughBrokersError(TidelogError, code=ErrorCode.NOT_ENOUGH_BROKERS):
    """The request would leave too few brokers for a topic, or give a broker too many replicas."""


class NotConfirmedError(TidelogError, code=ErrorCode.NOT_CONFIRMED):
    """The request deletes data and lacks its confirmation."""


class NotControllerError(TidelogError, code=ErrorCode.NOT_CONTROLLER):
    """The controller is not the active one."""


class StaleControllerEpochError(TidelogError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """A newer controller has been elected."""


class StaleBrokerEpochError(TidelogError, code=ErrorCode.STALE_BROKER_EPOCH):
    """The request belongs to a previous incarnation of a broker."""


class MetadataStoreUnavailableError(TidelogError, code=ErrorCode.METADATA_STORE_UNAVAILABLE):
    """The metadata store cannot be reached now."""


class FetchSessionError(TidelogError, code=ErrorCode.FETCH_SESSION_INVALID):
    """The fetch session is unknown or out of step."""


class RevisionConflictError(TidelogError, code=ErrorCode.REVISION_CONFLICT):
    """The subject of the request has changed since it was described."""


class UnknownOperationError(TidelogError, code=ErrorCode.UNKNOWN_OPERATION):
    """No operation has this id, or it ended long ago."""


class OperationIdInUseError(TidelogError, code=ErrorCode.OPERATION_ID_IN_USE):
    """Another request has this operation id."""


class OperationEndedError(TidelogError, code=ErrorCode.OPERATION_ENDED):
    """The operation has ended."""


class PartitionBusyError(TidelogError, code=ErrorCode.PARTITION_BUSY):
    """The partitions are being moved or removed by another operation."""


class NotEligibleLeaderError(TidelogError, code=ErrorCode.NOT_ELIGIBLE_LEADER):
    """The replica cannot lead now without loss of records."""


class UnsupportedVersionError(TidelogError, code=ErrorCode.UNSUPPORTED_VERSION):
    """The release of a process is too old for the request, or too new. The message names it."""


class ClientClosedError(TidelogError, code=ErrorCode.CLIENT_CLOSED):
    """The client was closed before or during the call. Only the client raises it."""


class ClientForkedError(TidelogError, code=ErrorCode.CLIENT_FORKED):
    """The client was made before a fork() and is used in the child. Make a new client there."""


def unknown_topic(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} does not exist; create it first, or correct the name: the topics that "
        "there are can be listed",
    )


def deleted_topic(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} does not exist any more: it was deleted; create it again, or use another",
    )


def unknown_partition(topic: str, partition: int, partitions: int) -> TidelogError:
    """`partitions`: the number of the topic's partitions."""
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"partition {partition} of topic {topic!r} does not exist; its partitions are 0 to "
        f"{partitions - 1}",
    )
