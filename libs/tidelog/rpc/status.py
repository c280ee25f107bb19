"""gRPC statuses as Tidelog's errors.

A partition's errors travel inside the answer; a status means that the request as a whole
failed, or never arrived.
"""

from __future__ import annotations

import grpc
import grpc.aio

from tidelog.errors import ErrorCode, TidelogError

# The server understood, and will say the same again.
_REFUSED = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.NOT_FOUND,
    }
)


class UnreachableError(Exception):
    """No answer from an address: whether the request was carried out is not known."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no answer from {address}: {reason}")
        self.address = address
        self.reason = reason


def from_status(error: grpc.aio.AioRpcError, address: str) -> UnreachableError | TidelogError:
    """What a failed call means: UnreachableError for UNAVAILABLE, DEADLINE_EXCEEDED and
    CANCELLED, INVALID_REQUEST for what was refused, INTERNAL for a fault of the server."""
    status = error.code()
    said = f"{status.name}: {error.details() or 'no details'}"
    if status in _REFUSED:
        return TidelogError(ErrorCode.INVALID_REQUEST, f"{address} refused the request: {said}")
    if status in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
    ):
        return UnreachableError(address, said)
    return TidelogError(ErrorCode.INTERNAL, f"{address} failed: {said}")
