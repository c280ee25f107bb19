"""Limits on what requests may take: size and entries of a body, time, and concurrency."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager
from http import HTTPStatus
from typing import Protocol

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.caller_limits import METRICS_LIMITS, LimitedClient, LimitReached, ReachedLimits
from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.json_entries import JsonEntries
from tidelog_admin_api.origins import check_browser
from tidelog_admin_api.problems import (
    ProblemError,
    malformed,
    response,
    timed_out,
    too_many,
    unsupported_body,
)
from tidelog_admin_api.requester import trace_id

# Monitoring gets an answer even if the gateway is at its limits.
ALWAYS_ANSWERED = frozenset({"/health", "/metrics"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# Bodies of the largest size that are held at a time; parsed, each takes several times its size.
LARGEST_BODIES = 8


_log = structlog.get_logger()


class Bounds(Protocol):
    """The limits; `AdminApiConfig` documents each."""

    @property
    def max_body_bytes(self) -> int: ...
    @property
    def body_timeout_ms(self) -> int: ...
    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def max_concurrent_requests(self) -> int: ...
    @property
    def max_requests_per_client(self) -> int: ...
    @property
    def max_connections_per_client(self) -> int: ...
    @property
    def max_concurrent_streams(self) -> int: ...
    @property
    def browser_hosts(self) -> Set[str]: ...


class Abortable(Protocol):
    """A connection."""

    def abort(self) -> None: ...


class Usage:
    """What requests use now, and how often limits have rejected some."""

    def __init__(self) -> None:
        self.requests = 0
        # By client address.
        self.clients: Counter[str] = Counter()
        self.connections: Counter[str] = Counter()
        # Connections that wait for a request, with their addresses, the longest wait first.
        self.waiting: dict[Abortable, str] = {}
        self.streams = 0
        self.body_bytes = 0
        # Numbers of rejected requests and connections, by the names in GATEWAY_LIMITS.
        self.rejections: Counter[str] = Counter()
        self._reached = ReachedLimits(_log_limit)

    def rejected(self, client: str, limit: str, value: int) -> None:
        """Counts a rejection by `limit`, one of GATEWAY_LIMITS."""
        self.rejections[limit] += 1
        self._reached.rejected(client, limit, value, _now_ms())

    def metrics_connection_closed(self, client: str, limit: str) -> None:
        """Counts a connection to the metrics port that was closed by one of METRICS_LIMITS.

        Called in the thread of the metrics server; only that changes these counts.
        """
        self.rejected(client, limit, METRICS_LIMITS[limit])

    def limited_clients(self) -> list[LimitedClient]:
        """Returns the clients that are at a limit now, the one rejected last first."""
        return self._reached.described(_now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@contextmanager
def stream(usage: Usage, bounds: Bounds, client: str) -> Iterator[None]:
    """Takes one of the places for streams until the context ends. Raises `ProblemError`."""
    if usage.streams >= bounds.max_concurrent_streams:
        usage.rejected(client, "max_concurrent_streams", bounds.max_concurrent_streams)
        raise too_many(
            f"{usage.streams} streams are open already, as many as may be; close one, or raise "
            "max_concurrent_streams"
        )
    usage.streams += 1
    try:
        yield
    finally:
        usage.streams -= 1


def _log_limit(reached: LimitReached) -> None:
    _log.warning(
        "client_limit_reached", client=reached.address, limit=reached.limit, value=reached.value
    )


class Limits:
    """Middleware that enforces the limits.

    The time limit of a request ends when its answer begins: a stream lasts as long as its
    client wants.
    """

    def __init__(self, app: ASGIApp, bounds: Bounds, usage: Usage) -> None:
        self._app = app
        self._bounds = bounds
        self._usage = usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS_ANSWERED:
            await self._app(scope, receive, send)
            return
        begun = False
        deadline = asyncio.timeout(self._bounds.request_timeout_ms / 1000)
        body = _Body(receive, self._bounds, self._usage, client_of(scope))

        async def begin(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                deadline.reschedule(None)
            await send(message)

        try:
            with self._slot(client_of(scope)):
                check_browser(
                    scope["method"], scope["path"], Headers(scope=scope), self._bounds.browser_hosts
                )
                _check_length(scope, self._bounds)
                _check_encoding(scope)
                async with deadline:
                    await self._app(scope, body.receive, begin)
            return
        except ProblemError as error:
            if begun:
                raise
            problem = error
        except TimeoutError:
            # Any other timeout is a fault of the handler.
            if begun or not deadline.expired():
                raise
            problem = _late(self._bounds)
        finally:
            body.release()
        answer = response(problem, scope["path"], trace_id(scope))
        await answer(scope, receive, send)

    @contextmanager
    def _slot(self, client: str) -> Iterator[None]:
        usage, most = self._usage, self._bounds.max_requests_per_client
        if usage.clients[client] >= most:
            usage.rejected(client, "max_requests_per_client", most)
            raise too_many(
                f"{usage.clients[client]} requests of client {client} are being answered, as many "
                "as may be at once; try again when some are done, or raise "
                "max_requests_per_client"
            )
        most = self._bounds.max_concurrent_requests
        if usage.requests >= most:
            usage.rejected(client, "max_concurrent_requests", most)
            raise too_many(
                f"{self._usage.requests} requests are being answered, as many as may be at once; "
                "try again when some are done"
            )
        usage.requests += 1
        usage.clients[client] += 1
        try:
            yield
        finally:
            usage.requests -= 1
            usage.clients[client] -= 1
            if not usage.clients[client]:
                del usage.clients[client]


class _Body:
    """The body of one request, within the limits of size, entries and time."""

    def __init__(self, receive: Receive, bounds: Bounds, usage: Usage, client: str) -> None:
        self._client = client
        self._receive = receive
        self._bounds = bounds
        self._usage = usage
        self._until = asyncio.get_running_loop().time() + bounds.body_timeout_ms / 1000
        self._received_bytes = 0
        self._entries = JsonEntries()
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise _slow(self._bounds) from None
        self._take(len(message.get("body", b"")))
        self._entries.add(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        return message

    def release(self) -> None:
        self._usage.body_bytes -= self._received_bytes
        self._received_bytes = 0

    def _take(self, size_bytes: int) -> None:
        self._received_bytes += size_bytes
        self._usage.body_bytes += size_bytes
        if self._received_bytes > self._bounds.max_body_bytes:
            raise body_too_large(self._bounds)
        most = LARGEST_BODIES * self._bounds.max_body_bytes
        if self._usage.body_bytes > most:
            self._usage.rejected(self._client, "body_bytes", most)
            raise too_many(
                f"the bodies of requests that are being answered are {self._usage.body_bytes} "
                "bytes together, more than may be at once; try again when some are done"
            )


def client_of(scope: Scope) -> str:
    """Returns the address of the client, or an empty string if it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _check_length(scope: Scope, bounds: Bounds) -> None:
    said = Headers(scope=scope).get("content-length", "0")
    if not (said.isascii() and said.isdecimal()):
        raise malformed(f"Content-Length: {said[:100]} is no number")
    if int(said[:20]) > bounds.max_body_bytes:
        raise body_too_large(bounds)


def _check_encoding(scope: Scope) -> None:
    """Rejects a compressed body, which would otherwise be reported as bad JSON."""
    encoding = Headers(scope=scope).get("content-encoding", "identity")
    if scope["method"] in _WITH_BODY and encoding.strip().lower() not in ("", "identity"):
        raise unsupported_body(
            f"the body has the content encoding {encoding[:100]}; bodies are not compressed",
            "Send the JSON as it is, without Content-Encoding.",
        )


def body_too_large(bounds: Bounds, counted: str = "") -> ProblemError:
    """Returns the error of a body that is too large.

    - `counted`: what counts besides its bytes, such as "with the framing of its chunks "
    """
    return ProblemError(
        "BODY_TOO_LARGE",
        ErrorMapping(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "RESOURCE_EXHAUSTED",
            "Send less at once, or raise max_body_bytes of the gateway.",
        ),
        f"the body {counted}is larger than {bounds.max_body_bytes} bytes, the most that the "
        "gateway takes",
    )


def _slow(bounds: Bounds) -> ProblemError:
    return ProblemError(
        "BODY_TIMED_OUT",
        ErrorMapping(HTTPStatus.REQUEST_TIMEOUT, "DEADLINE_EXCEEDED", "Send it again, faster."),
        f"the body had not come in after {bounds.body_timeout_ms} ms",
        headers={"Connection": "close"},
    )


def _late(bounds: Bounds) -> ProblemError:
    return timed_out(
        f"there was no answer within {bounds.request_timeout_ms} ms; what the request began goes "
        "on by itself"
    )
