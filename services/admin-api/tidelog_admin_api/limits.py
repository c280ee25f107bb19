"""Limits of requests: size and entries of a body, time, and concurrency."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Protocol

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.caller_limits import METRICS_LIMITS, LimitedClient, LimitReached, ReachedLimits
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.entry_counter import EntryCounter
from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.origins import check_browser
from tidelog_admin_api.problems import (
    ProblemError,
    invalid,
    malformed,
    response,
    timed_out,
    too_many,
    unsupported_body,
)
from tidelog_admin_api.requester import trace_id

# Monitoring gets an answer even if the gateway has reached its limits.
ALWAYS_ANSWERED = frozenset({"/health", "/metrics"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# Bodies of the largest size that are in memory at a time. Parsing takes several times their size.
LARGEST_BODIES = 8
# Entries of one body, as `EntryCounter` counts them. They are parsed and checked in one turn of the
# event loop.
MAX_JSON_ENTRIES = 50_000

_log = structlog.get_logger()


class Abortable(Protocol):
    """A connection."""

    def abort(self) -> None: ...


class Usage:
    """What requests use now, and the number of rejections by each limit."""

    def __init__(self) -> None:
        self.requests = 0
        # By client address.
        self.clients: Counter[str] = Counter()
        self.connections: Counter[str] = Counter()
        # Connections that wait for a request, with their addresses, the longest wait first.
        self.waiting: dict[Abortable, str] = {}
        self.streams = 0
        # Searches that run, by client address, and records that all searches have scanned.
        self.searches: Counter[str] = Counter()
        self.searched_records = 0
        self.body_bytes = 0
        # Numbers of rejected requests and connections, by names of GATEWAY_LIMITS.
        self.rejections: Counter[str] = Counter()
        self._reached = ReachedLimits(_log_limit)

    def rejected(self, client: str, limit: str, value: int) -> None:
        """Counts a rejection by `limit`, one of GATEWAY_LIMITS."""
        self.rejections[limit] += 1
        self._reached.rejected(client, limit, value, _now_ms())

    def searched(self, records: int) -> None:
        """Counts records that a search has scanned."""
        self.searched_records += records

    def metrics_connection_closed(self, client: str, limit: str) -> None:
        """Counts a connection to the metrics port that was closed by one of METRICS_LIMITS.

        Only the thread of the metrics server calls this and changes these counts.
        """
        self.rejected(client, limit, METRICS_LIMITS[limit])

    def limited_clients(self) -> list[LimitedClient]:
        """Returns the clients that are at a limit now, the latest rejection first."""
        return self._reached.described(_now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@contextmanager
def stream(usage: Usage, bounds: AdminApiConfig, client: str) -> Iterator[None]:
    """Counts an open stream until the context ends. Raises `ProblemError` at the limit."""
    if usage.streams >= bounds.max_concurrent_streams:
        usage.rejected(client, "max_concurrent_streams", bounds.max_concurrent_streams)
        raise too_many(
            f"{usage.streams} streams are open, the maximum; close a stream, or raise "
            "max_concurrent_streams of the gateway"
        )
    usage.streams += 1
    try:
        yield
    finally:
        usage.streams -= 1


@contextmanager
def search(usage: Usage, bounds: AdminApiConfig, client: str) -> Iterator[None]:
    """Counts a search until the context ends. Raises `ProblemError` at a limit."""
    running = {
        "max_searches_per_client": usage.searches[client],
        "max_concurrent_searches": usage.searches.total(),
    }
    for limit, count in running.items():
        most: int = getattr(bounds, limit)
        if count >= most:
            usage.rejected(client, limit, most)
            raise too_many(
                f"{count} searches are running, the maximum ({limit}); wait until one has ended, "
                f"end one by closing its connection, or raise {limit} of the gateway"
            )
    usage.searches[client] += 1
    try:
        yield
    finally:
        usage.searches[client] -= 1
        if not usage.searches[client]:
            del usage.searches[client]


def _log_limit(reached: LimitReached) -> None:
    _log.warning(
        "client_limit_reached", client=reached.address, limit=reached.limit, value=reached.value
    )


class Limits:
    """Middleware that enforces the limits.

    The timeout of a request ends when its answer begins. The client decides how long a stream
    lasts.
    """

    def __init__(self, app: ASGIApp, bounds: AdminApiConfig, usage: Usage) -> None:
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
            # Any other timeout is an error of the handler.
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
                f"{usage.clients[client]} requests of client {client} are pending, the maximum; "
                "try again when some have ended, or raise max_requests_per_client of the gateway"
            )
        most = self._bounds.max_concurrent_requests
        if usage.requests >= most:
            usage.rejected(client, "max_concurrent_requests", most)
            raise too_many(
                f"{usage.requests} requests are pending, the maximum; try again when some have "
                "ended"
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


class JsonEntries(EntryCounter):
    """Counts the entries of a body, and rejects a body with too many."""

    def feed(self, piece: bytes) -> None:
        """Counts the next piece.

        Raises `ProblemError` for more than MAX_JSON_ENTRIES, and for a NUL byte: with it a parser
        assumes UTF-16, whose entries are not counted.
        """
        if b"\0" in piece:
            raise malformed("the body contains a NUL byte, which is not valid in UTF-8 JSON")
        super().feed(piece)
        if self.count > MAX_JSON_ENTRIES:
            raise invalid(
                f"the body has {self.count} entries or more in all its lists and objects together; "
                f"a request has at most {MAX_JSON_ENTRIES}: send several requests"
            )


class _Body:
    """The body of a request, with limits on its size, its entries and its time of arrival."""

    def __init__(self, receive: Receive, bounds: AdminApiConfig, usage: Usage, client: str) -> None:
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
        piece = message.get("body", b"")
        self._take(len(piece))
        self._entries.feed(piece)
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
                f"the bodies of pending requests have {self._usage.body_bytes} bytes; the maximum "
                f"is {most}: try again when some requests have ended"
            )


def client_of(scope: Scope) -> str:
    """Returns the address of the client; empty: not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _check_length(scope: Scope, bounds: AdminApiConfig) -> None:
    length = Headers(scope=scope).get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise malformed(f"Content-Length: {length[:100]} is not a number")
    if int(length[:20]) > bounds.max_body_bytes:
        raise body_too_large(bounds)


def _check_encoding(scope: Scope) -> None:
    """Rejects a compressed body. Without this check the error would be invalid JSON."""
    encoding = Headers(scope=scope).get("content-encoding", "identity")
    if scope["method"] in _WITH_BODY and encoding.strip().lower() not in ("", "identity"):
        raise unsupported_body(
            f"the body has the content encoding {encoding[:100]}, which is not supported",
            "Send uncompressed JSON without Content-Encoding.",
        )


def body_too_large(bounds: AdminApiConfig, counted: str = "") -> ProblemError:
    """Returns the error of a body that is too large.

    - `counted`: what else counts, such as "with the framing of its chunks "
    """
    return ProblemError(
        "BODY_TOO_LARGE",
        ErrorMapping(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "RESOURCE_EXHAUSTED",
            "Send several smaller requests, or raise max_body_bytes of the gateway.",
        ),
        f"the body {counted}is larger than the maximum of {bounds.max_body_bytes} bytes",
    )


def _slow(bounds: AdminApiConfig) -> ProblemError:
    return ProblemError(
        "BODY_TIMED_OUT",
        ErrorMapping(
            HTTPStatus.REQUEST_TIMEOUT,
            "DEADLINE_EXCEEDED",
            "Send a smaller body, or raise body_timeout_ms of the gateway.",
        ),
        f"the body was not complete after {bounds.body_timeout_ms} ms",
        headers={"Connection": "close"},
    )


def _late(bounds: AdminApiConfig) -> ProblemError:
    return timed_out(
        f"no answer within {bounds.request_timeout_ms} ms; a change that the request started "
        "continues"
    )
