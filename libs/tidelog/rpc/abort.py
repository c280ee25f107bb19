"""Rejects an entire request with a gRPC status and `google.rpc` details."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.status import DETAILS_KEY, ERROR_DOMAIN

_STATUS = {
    ErrorCode.INTERNAL: grpc.StatusCode.INTERNAL,
    ErrorCode.NOT_CONTROLLER: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.STALE_BROKER_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.STALE_CONTROLLER_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.METADATA_STORE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


async def abort(
    context: grpc.aio.ServicerContext[Any, Any],
    error: TidelogError,
) -> NoReturn:
    """Ends the call with the error's message, and with its code as `ErrorInfo.reason`."""
    status = _STATUS.get(error.code, grpc.StatusCode.INVALID_ARGUMENT)
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=error.code.name, domain=ERROR_DOMAIN))
    details = status_pb2.Status(code=status.value[0], message=error.message, details=[detail])
    await context.abort(status, error.message, ((DETAILS_KEY, details.SerializeToString()),))
    raise AssertionError("abort returns by raising")
