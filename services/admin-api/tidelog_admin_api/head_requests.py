"""HEAD requests, by which load balancers and scripts check that a resource exists.

HEAD is a GET without the body of the answer (RFC 9110, section 9.3.2).
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATHS = frozenset({"/health", "/ready", "/metrics"})
_RESOURCES = "/v1/"
# A stream consists of its body alone, and ends when its client disconnects.
_STREAMS = frozenset({"/v1/events/stream"})


class HeadMiddleware:
    """Middleware that handles HEAD as GET.

    It is the innermost one, so that metrics and logs show the HEAD. The server omits the body
    and sends its length.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or not _has_head(scope["path"]):
            await self._app(scope, receive, send)
            return
        asked = {**scope, "method": "GET"}

        async def told(message: Message) -> None:
            # Metrics are labelled by the route.
            if "route" in asked:
                scope["route"] = asked["route"]
            await send(message)

        await self._app(asked, receive, told)


def _has_head(path: str) -> bool:
    return path in _PATHS or (path.startswith(_RESOURCES) and path not in _STREAMS)
