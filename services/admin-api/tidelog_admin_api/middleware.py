"""Middleware that handles HEAD as GET, and middleware that logs requests."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog_admin_api.origins import READS

_PATHS = frozenset({"/health", "/ready", "/metrics"})
_RESOURCES = "/v1/"
# A stream has no end before its client disconnects.
_STREAMS = frozenset({"/v1/events/stream"})


class HeadMiddleware:
    """Middleware that handles HEAD as GET.

    It is the innermost middleware, so that metrics and logs show HEAD. The server omits the body
    and sends its length.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or not _has_head(scope["path"]):
            await self._app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}

        async def with_route(message: Message) -> None:
            # Metrics are labelled by the route.
            if "route" in as_get:
                scope["route"] = as_get["route"]
            await send(message)

        await self._app(as_get, receive, with_route)


def _has_head(path: str) -> bool:
    return path in _PATHS or (path.startswith(_RESOURCES) and path not in _STREAMS)


_log = structlog.get_logger()


class AccessLogMiddleware:
    """Middleware that logs requests. `RequestContextMiddleware` around it sets requester and trace.

    - `seconds`: a monotonic clock
    """

    def __init__(self, app: ASGIApp, seconds: Callable[[], float]) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._seconds()

        async def logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                took_ms = round(1000 * (self._seconds() - began))
                self._write(scope, message["status"], took_ms)
            await send(message)

        await self._app(scope, receive, logged)

    def _write(self, scope: Scope, status: int, took_ms: int) -> None:
        write = _log.debug if scope["method"] in READS else _log.info
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            write = _log.warning
        write(
            "request_answered",
            method=scope["method"],
            path=scope["path"],
            query=scope["query_string"].decode("latin-1"),
            status=int(status),
            took_ms=took_ms,
            requested_by=scope["state"]["requested_by"],
            trace_id=scope["state"]["trace_id"],
        )
