"""The HTTP and gRPC status of each error code, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from tidelog.errors import ErrorCode

_LOOK_AGAIN = "Read the thing again, and decide with what it is now."
WAIT = "Try again in a moment; GET /v1/explain tells what is wrong where it lasts."


class ErrorMapping(NamedTuple):
    """How an error is reported.

    - `status`: of HTTP
    - `grpc_status`: name of the gRPC status
    - `fix`: what to do
    """

    status: HTTPStatus
    grpc_status: str
    fix: str


_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_INVALID, _UNAVAILABLE = HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE
_TIMED_OUT, _UPSTREAM = HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.BAD_GATEWAY


def _invalid(fix: str) -> ErrorMapping:
    return ErrorMapping(_INVALID, "INVALID_ARGUMENT", fix)


def _conflict(fix: str, grpc_status: str = "FAILED_PRECONDITION") -> ErrorMapping:
    return ErrorMapping(_CONFLICT, grpc_status, fix)


def unavailable(fix: str = WAIT) -> ErrorMapping:
    return ErrorMapping(_UNAVAILABLE, "UNAVAILABLE", fix)


IN_DOUBT = (
    "It may have been carried out all the same: look, or send the same request again, with the "
    "same operation_id where it has one."
)
_CONFIG = "GET a topic to see every key with its default and what it does."

ERROR_MAPPINGS: Mapping[ErrorCode, ErrorMapping] = {
    ErrorCode.INTERNAL: ErrorMapping(
        _UPSTREAM, "INTERNAL", "Look at the log of the service that the message names."
    ),
    ErrorCode.INVALID_REQUEST: _invalid("Correct what the message names."),
    ErrorCode.REQUEST_TIMED_OUT: ErrorMapping(_TIMED_OUT, "DEADLINE_EXCEEDED", IN_DOUBT),
    ErrorCode.TOO_MANY_REQUESTS: unavailable("Wait a moment, then send it again."),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorMapping(
        _NOT_FOUND, "NOT_FOUND", "GET /v1/topics lists the topics that there are."
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorMapping(_NOT_FOUND, "NOT_FOUND", _LOOK_AGAIN),
    ErrorCode.NOT_LEADER: unavailable(),
    ErrorCode.LEADER_NOT_AVAILABLE: unavailable(
        "GET /v1/explain?topic=… tells why nobody leads; GET /v1/recovery what could be done."
    ),
    ErrorCode.FENCED_LEADER_EPOCH: unavailable(),
    ErrorCode.UNKNOWN_LEADER_EPOCH: unavailable(),
    ErrorCode.LEADER_CHANGED: ErrorMapping(_TIMED_OUT, "DEADLINE_EXCEEDED", IN_DOUBT),
    ErrorCode.NOT_ENOUGH_REPLICAS: unavailable(
        "Bring replicas back; GET /v1/explain?topic=… names those that are missing, and why."
    ),
    ErrorCode.OFFSET_NOT_AVAILABLE: unavailable(),
    ErrorCode.OFFSET_OUT_OF_RANGE: ErrorMapping(
        _INVALID, "OUT_OF_RANGE", "GET the partition to see where its log begins and ends."
    ),
    ErrorCode.BATCH_TOO_LARGE: ErrorMapping(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "INVALID_ARGUMENT",
        "Send smaller records, or raise the topic's max_batch_bytes.",
    ),
    ErrorCode.CORRUPT_BATCH: ErrorMapping(_UPSTREAM, "DATA_LOSS", "Send it again."),
    ErrorCode.INVALID_BATCH: _invalid("Correct what the message names."),
    ErrorCode.OUT_OF_ORDER_SEQUENCE: _conflict(WAIT),
    ErrorCode.DUPLICATE_SEQUENCE: _conflict("The records are in the log already."),
    ErrorCode.FENCED_PRODUCER_EPOCH: _conflict("Send it again: the gateway takes a new epoch."),
    ErrorCode.UNKNOWN_PRODUCER_ID: _conflict("Send it again: the gateway takes a new id."),
    ErrorCode.INVALID_TIMESTAMP: _invalid(
        "Send milliseconds since 1970 (UTC), or raise the topic's timestamp_max_ahead_ms."
    ),
    ErrorCode.RECORDS_DAMAGED: ErrorMapping(
        HTTPStatus.GONE,
        "DATA_LOSS",
        "Read on from damaged.next_offset, or send on_damage=skip, which leaves damaged records "
        "out and lists their offsets; GET /v1/explain says where the bytes are kept.",
    ),
    ErrorCode.STORAGE_ERROR: unavailable("Look at the disk of the broker that is named."),
    ErrorCode.INVALID_TOPIC_NAME: _invalid("Choose a name as the message describes."),
    ErrorCode.TOPIC_ALREADY_EXISTS: _conflict(
        "Choose another name, or GET the topic that there is.", "ALREADY_EXISTS"
    ),
    ErrorCode.INVALID_PARTITION_COUNT: _invalid("Ask for a number that the message allows."),
    ErrorCode.INVALID_REPLICATION_FACTOR: _invalid(
        "GET /v1/brokers shows how many brokers take replicas."
    ),
    ErrorCode.INVALID_CONFIG: _invalid(_CONFIG),
    ErrorCode.TOPIC_BEING_DELETED: _conflict("Wait until the topic is gone."),
    ErrorCode.INVALID_ASSIGNMENT: _invalid("Correct the replicas as the message says."),
    ErrorCode.UNKNOWN_BROKER: ErrorMapping(
        _NOT_FOUND, "NOT_FOUND", "GET /v1/brokers lists the brokers that are known."
    ),
    ErrorCode.NOT_ENOUGH_BROKERS: _conflict(
        "Add brokers first, lower the factor of topics, or ask for fewer partitions."
    ),
    ErrorCode.NOT_CONFIRMED: _invalid("Name the topic once more as confirm."),
    ErrorCode.NOT_CONTROLLER: unavailable(),
    ErrorCode.STALE_CONTROLLER_EPOCH: unavailable(),
    ErrorCode.STALE_BROKER_EPOCH: unavailable(),
    ErrorCode.METADATA_STORE_UNAVAILABLE: unavailable(
        "Look whether etcd runs and has a quorum; GET /v1/explain tells who does not reach it."
    ),
    ErrorCode.FETCH_SESSION_INVALID: unavailable(),
    ErrorCode.REVISION_CONFLICT: ErrorMapping(
        HTTPStatus.PRECONDITION_FAILED, "FAILED_PRECONDITION", _LOOK_AGAIN
    ),
    ErrorCode.UNKNOWN_OPERATION: ErrorMapping(
        _NOT_FOUND, "NOT_FOUND", "GET /v1/operations lists those that are kept."
    ),
    ErrorCode.OPERATION_ID_IN_USE: _conflict("Choose another operation_id.", "ALREADY_EXISTS"),
    ErrorCode.OPERATION_ENDED: _conflict("GET the operation to see how it ended."),
    ErrorCode.PARTITION_BUSY: _conflict(
        "Wait for the operation that is named, or cancel it: POST /v1/operations/{id}/cancel."
    ),
    ErrorCode.NOT_ELIGIBLE_LEADER: _conflict(
        "Choose a replica in sync, or wait until this one is."
    ),
    # Errors of the gateway's own clients: the gateway is stopping, or its process has a fault.
    ErrorCode.CLIENT_CLOSED: unavailable("The gateway is stopping; send the request again."),
    ErrorCode.CLIENT_FORKED: unavailable("Restart the gateway."),
}
