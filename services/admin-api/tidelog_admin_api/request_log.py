"""Logs requests: changes at info, reads at debug, and server errors as warnings."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog_admin_api.origins import READS

_log = structlog.get_logger()


class AccessLogMiddleware:
    """Middleware inside of `RequestContextMiddleware`, whose state it logs.

    - `seconds`: a clock of which only differences are used
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
