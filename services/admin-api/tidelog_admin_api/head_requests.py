"""HEAD, with which balancers and scripts ask whether something is there: a GET whose body is left
out (RFC 9110, section 9.3.2)."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATHS = frozenset({"/health", "/ready", "/metrics"})
_RESOURCES = "/v1/"
# A stream is nothing but its body, and ends when its reader goes.
_STREAMS = frozenset({"/v1/events/stream"})


class Headed:
    """Middleware, the innermost one: who counts and logs requests sees what was asked. The server
    leaves the body out, whose length is told."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or not _has_head(scope["path"]):
            await self._app(scope, receive, send)
            return
        asked = {**scope, "method": "GET"}

        async def told(message: Message) -> None:
            # By which requests are counted.
            if "route" in asked:
                scope["route"] = asked["route"]
            await send(message)

        await self._app(asked, receive, told)


def _has_head(path: str) -> bool:
    return path in _PATHS or (path.startswith(_RESOURCES) and path not in _STREAMS)
