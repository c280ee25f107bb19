"""The middleware of all requests, from the innermost to the outermost, except `limits.Limits`."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.client.controller_calls import REQUESTED_BY, REQUESTED_FROM
from tidelog.rpc.trace_context import carrying, trace_id_of
from tidelog_admin_api.metrics import NO_ROUTE, GatewayMetrics
from tidelog_admin_api.origins import READS
from tidelog_admin_api.problems import response, unexpected
from tidelog_admin_api.requester import (
    TRACE_ID_HEADER,
    requested_by,
    requested_from,
    trace_id,
    trace_of,
)

_PATHS = frozenset({"/health", "/ready", "/metrics"})
_RESOURCES = "/v1/"
# A stream ends late, and an answer to HEAD would be all of it.
_STREAMS = re.compile(r"/v1/events/stream|/v1/topics/[^/]+/search")
# Headers of all answers: browsers do not guess the media type, and other sites cannot embed them.
ANSWER_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_HOST = "unknown"
# A valid client host. A proxy in front of the gateway can send any text.
_HOST = re.compile(r"[0-9A-Za-z.:%_-]{1,80}")

_log = structlog.get_logger()


class HttpMiddleware:
    """Middleware whose `handle` processes HTTP requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handle = self.handle if scope["type"] == "http" else self._app
        await handle(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


def _on_start(send: Send, action: Callable[[Message], None]) -> Send:
    """Returns a `send` that calls `action` with the message that starts the answer."""

    async def send_message(message: Message) -> None:
        if message["type"] == "http.response.start":
            action(message)
        await send(message)

    return send_message


class HeadMiddleware(HttpMiddleware):
    """Handles HEAD as GET.

    It is the innermost middleware, so that metrics and logs show HEAD. The server omits the body
    and sends its length.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "HEAD" or not _has_head(scope["path"]):
            await self._app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}

        def copy_route(_: Message) -> None:
            # Metrics are labelled by the route.
            if "route" in as_get:
                scope["route"] = as_get["route"]

        await self._app(as_get, receive, _on_start(send, copy_route))


def _has_head(path: str) -> bool:
    return path in _PATHS or (path.startswith(_RESOURCES) and _STREAMS.fullmatch(path) is None)


class ErrorMiddleware(HttpMiddleware):
    """Logs an unexpected exception once and answers with an INTERNAL problem."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        started: list[Message] = []
        try:
            await self._app(scope, receive, _on_start(send, started.append))
        except Exception:
            trace = trace_id(scope)
            _log.exception(
                "request_failed", method=scope["method"], path=scope["path"], trace_id=trace
            )
            if started:
                # Without the exception, the client would regard the answer as complete.
                raise
            answer = response(unexpected(trace), scope["path"], trace)
            await answer(scope, receive, send)


class AccessLogMiddleware(HttpMiddleware):
    """Logs requests. `RequestContextMiddleware` around it sets requester and trace.

    - `seconds`: a monotonic clock
    """

    def __init__(self, app: ASGIApp, seconds: Callable[[], float]) -> None:
        super().__init__(app)
        self._seconds = seconds

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._seconds()

        def log(message: Message) -> None:
            write = _log.debug if scope["method"] in READS else _log.info
            if message["status"] >= HTTPStatus.INTERNAL_SERVER_ERROR:
                write = _log.warning
            write(
                "request_answered",
                method=scope["method"],
                path=scope["path"],
                query=scope["query_string"].decode("latin-1"),
                status=int(message["status"]),
                took_ms=round(1000 * (self._seconds() - began)),
                requested_by=scope["state"]["requested_by"],
                trace_id=scope["state"]["trace_id"],
            )

        await self._app(scope, receive, _on_start(send, log))


class RequestContextMiddleware(HttpMiddleware):
    """Sets requester and trace of a request, and the trace id of the answer."""

    def __init__(self, app: ASGIApp, rng: random.Random) -> None:
        super().__init__(app)
        self._rng = rng

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host, port = scope.get("client") or (_NO_HOST, 0)
        host = host if _HOST.fullmatch(host) else _NO_HOST
        trace = trace_of(headers, self._rng)
        name = requested_by(headers, host)
        state = scope.setdefault("state", {})
        state.update(trace_id=trace_id_of(trace), requested_by=name)

        def set_trace_id(message: Message) -> None:
            MutableHeaders(scope=message)[TRACE_ID_HEADER] = trace_id_of(trace)

        caller = ((REQUESTED_BY, name), (REQUESTED_FROM, requested_from(host, port)))
        with carrying((*trace, *caller)):
            await self._app(scope, receive, _on_start(send, set_trace_id))


class SecurityHeadersMiddleware(HttpMiddleware):
    """Adds ANSWER_HEADERS to every answer."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        def add_headers(message: Message) -> None:
            MutableHeaders(scope=message).update(ANSWER_HEADERS)

        await self._app(scope, receive, _on_start(send, add_headers))


class MetricsMiddleware(HttpMiddleware):
    """Counts and times requests."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._metrics.seconds()

        def count(message: Message) -> None:
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            took = self._metrics.seconds() - began
            self._metrics.answered(route, scope["method"], message["status"], took)

        await self._app(scope, receive, _on_start(send, count))
