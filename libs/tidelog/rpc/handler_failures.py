"""What a handler that fails without an error of Tidelog's own does to its request: it ends with a
typed error that says so, and the service goes on.

A `MemoryError` is one of these. What was changed half is the handler's to repair: the log of a
partition counts as failed and is opened again, and a controller begins its term anew. What ends
the process (`SystemExit`, `KeyboardInterrupt`) passes through."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.abort import abort

LOG_INTERVAL_S = 10.0

_log = logging.getLogger(__name__)
_PACKAGE = "/tidelog."
# gRPC's own: the call is over, or its client is gone.
_OF_GRPC = (grpc.aio.AbortError, grpc.aio.UsageError, grpc.aio.InternalError)


class HandlerFailures(grpc.aio.ServerInterceptor):
    """For the handlers of Tidelog's services; the first of a server's interceptors."""

    def __init__(self) -> None:
        self._guarded: dict[str, tuple[Any, Any]] = {}
        # Methods of which a failure was logged, and when.
        self._logged_at: dict[str, float] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or not method.startswith(_PACKAGE):
            return handler
        known = self._guarded.get(method)
        if known is None or known[0] is not handler:
            known = handler, self._guard(method, handler)
            if not handler.response_streaming and not handler.request_streaming:
                self._guarded[method] = known
        return known[1]

    def _guard(self, method: str, handler: Any) -> Any:
        forms = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:
            guarded = self._unary(method, handler.unary_unary)
            return grpc.unary_unary_rpc_method_handler(guarded, *forms)
        if handler.unary_stream is not None:
            streaming = self._stream(method, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(streaming, *forms)
        if handler.stream_stream is not None:
            streaming = self._stream(method, handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(streaming, *forms)
        raise NotImplementedError(f"{method}: a stream of requests with one answer is not guarded")

    def _unary(self, method: str, behave: Callable[..., Any]) -> Callable[..., Any]:
        async def guarded(request: Any, context: Any) -> Any:
            try:
                return await behave(request, context)
            except _OF_GRPC:
                raise
            except Exception as error:
                await abort(context, self._failure(method, error))

        return guarded

    def _stream(self, method: str, behave: Callable[..., Any]) -> Callable[..., Any]:
        async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                async for response in behave(request, context):
                    yield response
            except _OF_GRPC:
                raise
            except Exception as error:
                await abort(context, self._failure(method, error))

        return guarded

    def _failure(self, method: str, error: Exception) -> TidelogError:
        if isinstance(error, TidelogError):
            return error
        name = method.rpartition("/")[2]
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        if isinstance(error, MemoryError):
            said = "MemoryError: the process may not use more memory; send smaller requests, or "
            said += "raise its limit (ulimit -v, or that of its container)"
        now = time.monotonic()
        if now - self._logged_at.get(method, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_at[method] = now
            # Where memory ran out says nothing of why; any other traceback does.
            traceback = None if isinstance(error, MemoryError) else error
            _log.error("request failed: %s: %s", name, said, exc_info=traceback)
        return TidelogError(
            ErrorCode.INTERNAL,
            f"{name} failed in the service, and whether it had an effect is not known: {said}",
        )
