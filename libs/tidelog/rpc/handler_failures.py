"""Ends the request of a handler that fails without an error of Tidelog's own. The request gets a
typed error, and the service continues.

A `MemoryError` is such a failure. The handler has to repair partial changes: the log of a partition
counts as failed and is opened again, and a controller starts its term again. Exceptions that end
the process (`SystemExit`, `KeyboardInterrupt`) pass through."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import grpc.aio

from tidelog.errors import ErrorCode, TidelogError
from tidelog.memory_shortage import is_memory_shortage, origin
from tidelog.rpc.abort import abort
from tidelog.rpc.wrapped_handlers import HandlerWrapper, Stream, Unary

LOG_INTERVAL_S = 10.0

_log = logging.getLogger(__name__)
# gRPC's own errors: the call is over, or its client is gone.
_OF_GRPC = (grpc.aio.AbortError, grpc.aio.UsageError, grpc.aio.InternalError)
_GRPC_LOGGER = "grpc._cython.cygrpc"
_ENDED = "ExecuteBatchError raised in core by servicer method ["


class EndedCalls(logging.Filter):
    """Reduces gRPC's report of a call that it ended itself to one line, at intervals.

    gRPC logs an error with a traceback, although only the client is at fault: it disconnected
    before its answer was sent, or its message is too large once it is decompressed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged_at = -LOG_INTERVAL_S

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        if not message.startswith(_ENDED):
            return True
        now = time.monotonic()
        if now - self._logged_at < LOG_INTERVAL_S:
            return False
        self._logged_at = now
        method = message.removeprefix(_ENDED).rstrip("]").rpartition("/")[2]
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = (
            f"a {method} call ended before its answer was sent: its client disconnected, or its "
            "message is too large"
        )
        record.args, record.exc_info, record.exc_text = (), None, None
        return True


_ended_calls = EndedCalls()


def reduce_grpc_log() -> None:
    """Applies `EndedCalls` to the log of gRPC."""
    logging.getLogger(_GRPC_LOGGER).addFilter(_ended_calls)


class HandlerFailures(HandlerWrapper):
    """Guards the handlers of all services. It is the first interceptor of a server."""

    def __init__(self) -> None:
        super().__init__()
        # Time of the last logged failure, by method.
        self._logged_at: dict[str, float] = {}

    def unary(self, method: str, behave: Unary) -> Unary:
        async def guarded(request: Any, context: Any) -> Any:
            try:
                return await behave(request, context)
            except _OF_GRPC:
                raise
            except Exception as error:
                await self._abort(method, context, error)

        return guarded

    def stream(self, method: str, behave: Stream) -> Stream:
        async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                async for response in behave(request, context):
                    yield response
            except _OF_GRPC:
                raise
            except Exception as error:
                await self._abort(method, context, error)

        return guarded

    async def _abort(self, method: str, context: Any, error: Exception) -> NoReturn:
        if context.code() is grpc.StatusCode.UNIMPLEMENTED:
            # Generated code sets it for a method that the service does not implement, and raises.
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not implemented")
        await abort(context, self._failure(method, error))

    def _failure(self, method: str, error: Exception) -> TidelogError:
        if isinstance(error, TidelogError):
            return error
        name = method.rpartition("/")[2]
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        if is_memory_shortage(error):
            reason = f"{type(error).__name__}: the process may not use more memory; send smaller "
            reason += "requests, or raise its limit (ulimit -v, or that of its container)"
        now = time.monotonic()
        if now - self._logged_at.get(method, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_at[method] = now
            # The traceback of a memory shortage does not say why memory ran out.
            if is_memory_shortage(error):
                _log.error("request failed: %s: %s; raised: %s", name, reason, origin(error))
            else:
                _log.error("request failed: %s: %s", name, reason, exc_info=error)
        return TidelogError(
            ErrorCode.INTERNAL,
            f"{name} failed in the service, and whether it had an effect is not known: {reason}",
        )
