"""The HTTP status, gRPC status and fix of each error code."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from tidelog.errors import ErrorCode
from tidelog.request_bounds import MAX_TOPIC_NAME_LENGTH

# Sent where only the message can say what would be valid.
NO_FIX = ""
_READ_AGAIN = "Read the resource again, and repeat the request with the new values."
WAIT = "Try again in a moment. If the error persists, GET /v1/explain shows the cause."


class ErrorMapping(NamedTuple):
    """How an error is reported.

    - `fix`: a step that is more specific than to do what the message says; or NO_FIX
    """

    status: HTTPStatus
    grpc_status: str
    fix: str


_INVALID, _UPSTREAM = HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.BAD_GATEWAY


def _invalid(fix: str) -> ErrorMapping:
    return ErrorMapping(_INVALID, "INVALID_ARGUMENT", fix)


def _not_found(fix: str) -> ErrorMapping:
    return ErrorMapping(HTTPStatus.NOT_FOUND, "NOT_FOUND", fix)


def _conflict(fix: str, grpc_status: str = "FAILED_PRECONDITION") -> ErrorMapping:
    return ErrorMapping(HTTPStatus.CONFLICT, grpc_status, fix)


def unavailable(fix: str = WAIT) -> ErrorMapping:
    return ErrorMapping(HTTPStatus.SERVICE_UNAVAILABLE, "UNAVAILABLE", fix)


OUTCOME_UNKNOWN = (
    "The change may have been carried out: check the state, or repeat the request with the same "
    "operation_id if it has one."
)
_TIMED_OUT = ErrorMapping(HTTPStatus.GATEWAY_TIMEOUT, "DEADLINE_EXCEEDED", OUTCOME_UNKNOWN)

ERROR_MAPPINGS: Mapping[ErrorCode, ErrorMapping] = {
    ErrorCode.INTERNAL: ErrorMapping(
        _UPSTREAM, "INTERNAL", "Check the log of the service that the message names."
    ),
    ErrorCode.INVALID_REQUEST: _invalid(NO_FIX),
    ErrorCode.REQUEST_TIMED_OUT: _TIMED_OUT,
    ErrorCode.TOO_MANY_REQUESTS: unavailable(
        "Repeat the request after the seconds of Retry-After. GET /v1/explain names the limit and "
        "the clients that have reached it (client_limited)."
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _not_found("GET /v1/topics lists the topics that exist."),
    ErrorCode.UNKNOWN_TOPIC_ID: _not_found(_READ_AGAIN),
    ErrorCode.NOT_LEADER: unavailable(),
    ErrorCode.LEADER_NOT_AVAILABLE: unavailable(
        "GET /v1/explain?topic=… shows why there is no leader, and GET /v1/recovery the choices."
    ),
    ErrorCode.FENCED_LEADER_EPOCH: unavailable(),
    ErrorCode.UNKNOWN_LEADER_EPOCH: unavailable(),
    ErrorCode.LEADER_CHANGED: _TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS: unavailable(
        "Restore replicas; GET /v1/explain?topic=… names the missing ones and the causes."
    ),
    ErrorCode.OFFSET_NOT_AVAILABLE: unavailable(),
    ErrorCode.OFFSET_OUT_OF_RANGE: ErrorMapping(
        _INVALID, "OUT_OF_RANGE", "GET the partition to see its first and last offset."
    ),
    ErrorCode.BATCH_TOO_LARGE: ErrorMapping(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "INVALID_ARGUMENT",
        "Send smaller records, or raise the topic's max_batch_bytes.",
    ),
    ErrorCode.CORRUPT_BATCH: ErrorMapping(
        _UPSTREAM,
        "DATA_LOSS",
        "Repeat the request. If the error persists, GET /v1/explain names damaged replicas.",
    ),
    ErrorCode.INVALID_BATCH: _invalid(NO_FIX),
    ErrorCode.OUT_OF_ORDER_SEQUENCE: _conflict(WAIT),
    ErrorCode.DUPLICATE_SEQUENCE: _conflict("The log already contains the records."),
    ErrorCode.FENCED_PRODUCER_EPOCH: _conflict(
        "Repeat the request; the gateway then uses a new producer epoch."
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: _conflict(
        "Repeat the request; the gateway then uses a new producer id."
    ),
    ErrorCode.INVALID_TIMESTAMP: _invalid(
        "Send milliseconds since 1970 (UTC), or raise the topic's timestamp_max_ahead_ms."
    ),
    ErrorCode.RECORDS_DAMAGED: ErrorMapping(
        HTTPStatus.GONE,
        "DATA_LOSS",
        "Continue from damaged.next_offset or before damaged.first_offset, or send on_damage=skip, "
        "which leaves damaged records out and lists their offsets. GET /v1/explain shows where the "
        "bytes are kept.",
    ),
    ErrorCode.STORAGE_ERROR: unavailable("Check the disk of the broker that the message names."),
    ErrorCode.INVALID_TOPIC_NAME: _invalid(
        f"Choose a name of 1 to {MAX_TOPIC_NAME_LENGTH} letters, digits, '.', '_' or '-'."
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: _conflict(
        "Choose another name, or use the existing topic.", "ALREADY_EXISTS"
    ),
    ErrorCode.INVALID_PARTITION_COUNT: _invalid(NO_FIX),
    ErrorCode.INVALID_REPLICATION_FACTOR: _invalid(
        "GET /v1/brokers shows how many brokers accept replicas."
    ),
    ErrorCode.INVALID_CONFIG: _invalid(
        "GET a topic to see every key with its default and description."
    ),
    ErrorCode.TOPIC_BEING_DELETED: _conflict("Wait until the topic is gone."),
    ErrorCode.INVALID_ASSIGNMENT: _invalid(
        "GET /v1/brokers lists the brokers that may have replicas."
    ),
    ErrorCode.UNKNOWN_BROKER: _not_found("GET /v1/brokers lists the known brokers."),
    ErrorCode.NOT_ENOUGH_BROKERS: _conflict(
        "Add brokers, lower the replication factor of topics, or request fewer partitions."
    ),
    ErrorCode.NOT_CONFIRMED: _invalid("Set `confirm` to the name of the topic."),
    ErrorCode.NOT_CONTROLLER: unavailable(),
    ErrorCode.STALE_CONTROLLER_EPOCH: unavailable(),
    ErrorCode.STALE_BROKER_EPOCH: unavailable(),
    ErrorCode.METADATA_STORE_UNAVAILABLE: unavailable(
        "Check that etcd runs and has a quorum; GET /v1/explain names services that cannot reach "
        "it."
    ),
    ErrorCode.FETCH_SESSION_INVALID: unavailable(),
    ErrorCode.REVISION_CONFLICT: ErrorMapping(
        HTTPStatus.PRECONDITION_FAILED, "FAILED_PRECONDITION", _READ_AGAIN
    ),
    ErrorCode.UNKNOWN_OPERATION: _not_found(
        "GET /v1/operations lists the operations that are kept."
    ),
    ErrorCode.OPERATION_ID_IN_USE: _conflict("Choose another operation_id.", "ALREADY_EXISTS"),
    ErrorCode.OPERATION_ENDED: _conflict("GET the operation to see how it ended."),
    ErrorCode.PARTITION_BUSY: _conflict(
        "Wait for the named operation, or cancel it: POST /v1/operations/{id}/cancel."
    ),
    ErrorCode.NOT_ELIGIBLE_LEADER: _conflict(
        "Choose an in-sync replica, or wait until this one is."
    ),
    ErrorCode.UNSUPPORTED_VERSION: _conflict(
        "GET /v1/cluster/feature-level lists each process with its version; upgrade the named ones."
    ),
    # Errors of the gateway's own clients: the gateway is stopping, or its process has a fault.
    ErrorCode.CLIENT_CLOSED: unavailable("The gateway is stopping; repeat the request."),
    ErrorCode.CLIENT_FORKED: unavailable("Restart the gateway."),
}
