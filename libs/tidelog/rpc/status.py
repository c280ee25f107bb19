"""Converts gRPC statuses to Tidelog's errors.

Errors of partitions are in the response. A status means that the entire request failed, or never
arrived.
"""

from __future__ import annotations

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from tidelog.errors import ErrorCode, InvalidRequestError, TidelogError

ERROR_DOMAIN = "tidelog"
# gRPC's own message for a server that reached `maximum_concurrent_rpcs`.
_SERVER_IS_FULL = "Concurrent RPC limit exceeded"
# gRPC's own message if its resolver found no address for a host name.
_UNRESOLVED = "errors resolving"
# gRPC's own message for a server whose first bytes are not those of HTTP/2.
_NOT_HTTP_2 = "Failed parsing HTTP/2"
# The key under which gRPC carries a serialized `google.rpc.Status`.
DETAILS_KEY = "grpc-status-details-bin"

# The server understood the request, and a retry has the same result.
_REJECTED = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.NOT_FOUND,
    }
)


class UnreachableError(Exception):
    """No answer from an address; it is unknown whether the request was carried out. `unresolved`:
    the host name has no address, so nothing was sent."""

    def __init__(self, address: str, reason: str, *, unresolved: bool = False) -> None:
        super().__init__(f"no answer from {address}: {reason}")
        self.address = address
        self.reason = reason
        self.unresolved = unresolved


class UnknownMethodError(InvalidRequestError):
    """The server has no such method. Another address may have it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


def from_status(error: grpc.aio.AioRpcError, address: str) -> UnreachableError | TidelogError:
    """Returns the error of a failed call.

    That is the service's own error if there is one. Otherwise: UnreachableError for UNAVAILABLE,
    DEADLINE_EXCEEDED, CANCELLED and ABORTED; TOO_MANY_REQUESTS for a server with too many calls;
    UnknownMethodError for UNIMPLEMENTED; INVALID_REQUEST for a rejected request; INTERNAL for a
    fault of the server."""
    rejection = _rejection(error)
    if rejection is not None:
        return rejection
    status = error.code()
    said = f"{status.name}: {error.details() or 'no details'}"
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and _SERVER_IS_FULL in said:
        return TidelogError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"{address} answers as many requests as it takes at once; try again in a moment",
        )
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return UnknownMethodError(
            f"{address} does not know the request ({said}): it is another kind of service, or an "
            "older release; name a broker's address, as tidelog cluster describe lists them",
        )
    if status in _REJECTED:
        return TidelogError(ErrorCode.INVALID_REQUEST, f"{address} rejected the request: {said}")
    if status in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
    ):
        if _NOT_HTTP_2 in said:
            said = (
                "what listens there does not speak gRPC (is it the port of a gateway or of "
                "metrics?); name a broker's gRPC address"
            )
        return UnreachableError(address, said, unresolved=_UNRESOLVED in said)
    return TidelogError(ErrorCode.INTERNAL, f"{address} failed: {said}")


def _rejection(error: grpc.aio.AioRpcError) -> TidelogError | None:
    """Returns the error that `tidelog.rpc.abort` sent; None: the status has another origin."""
    for key, value in error.trailing_metadata():
        if key == DETAILS_KEY:
            status = status_pb2.Status.FromString(value)
            info = error_details_pb2.ErrorInfo()
            for detail in status.details:
                if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
                    return TidelogError(_code(info.reason), status.message)
    return None


def _code(reason: str) -> ErrorCode:
    return ErrorCode.__members__.get(reason, ErrorCode.INTERNAL)
