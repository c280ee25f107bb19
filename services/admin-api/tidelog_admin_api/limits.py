"""How much of the gateway requests may take: bytes of a body, time, and how many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Set
from contextlib import contextmanager
from http import HTTPStatus
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog_admin_api.origins import check_browser
from tidelog_admin_api.problems import (
    Meaning,
    ProblemError,
    malformed,
    response,
    timed_out,
    too_many,
)
from tidelog_admin_api.requester import trace_id

# Whoever watches the gateway is answered however busy it is.
ALWAYS_ANSWERED = frozenset({"/health", "/metrics"})


class Bounds(Protocol):
    """`AdminApiConfig` documents each."""

    @property
    def max_body_bytes(self) -> int: ...
    @property
    def body_timeout_ms(self) -> int: ...
    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def max_concurrent_requests(self) -> int: ...
    @property
    def max_concurrent_streams(self) -> int: ...
    @property
    def browser_hosts(self) -> Set[str]: ...


class Usage:
    """What is in use now."""

    def __init__(self) -> None:
        self.requests = 0
        self.streams = 0


@contextmanager
def stream(usage: Usage, bounds: Bounds) -> Iterator[None]:
    """One of the streams that may be open at once, for as long as this is entered."""
    if usage.streams >= bounds.max_concurrent_streams:
        raise too_many(
            f"{usage.streams} streams are open already, as many as may be; close one, or raise "
            "max_concurrent_streams"
        )
    usage.streams += 1
    try:
        yield
    finally:
        usage.streams -= 1


class Limits:
    """Middleware. The time of a request ends with the beginning of its answer: a stream lasts
    for as long as its reader likes."""

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

        async def begin(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                deadline.reschedule(None)
            await send(message)

        try:
            with self._slot():
                check_browser(
                    scope["method"], scope["path"], Headers(scope=scope), self._bounds.browser_hosts
                )
                self._check_length(scope)
                async with deadline:
                    await self._app(scope, self._bounded(receive), begin)
            return
        except ProblemError as error:
            if begun:
                raise
            problem = error
        except TimeoutError:
            # Any other one is a fault of who answers.
            if begun or not deadline.expired():
                raise
            problem = self._late()
        answer = response(problem, scope["path"], trace_id(scope))
        await answer(scope, receive, send)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if self._usage.requests >= self._bounds.max_concurrent_requests:
            raise too_many(
                f"{self._usage.requests} requests are being answered, as many as may be at once; "
                "try again when some are done"
            )
        self._usage.requests += 1
        try:
            yield
        finally:
            self._usage.requests -= 1

    def _check_length(self, scope: Scope) -> None:
        said = Headers(scope=scope).get("content-length", "0")
        if not (said.isascii() and said.isdecimal()):
            raise malformed(f"Content-Length: {said[:100]} is no number")
        if int(said[:20]) > self._bounds.max_body_bytes:
            raise self._too_large()

    def _bounded(self, receive: Receive) -> Receive:
        """The body, as long as it is neither too large nor too late."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._bounds.body_timeout_ms / 1000
        received, complete = 0, False

        async def bounded() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise self._slow() from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > self._bounds.max_body_bytes:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> ProblemError:
        return ProblemError(
            "BODY_TOO_LARGE",
            Meaning(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "RESOURCE_EXHAUSTED",
                "Send less at once, or raise max_body_bytes of the gateway.",
            ),
            f"the body is larger than {self._bounds.max_body_bytes} bytes, the most that the "
            "gateway takes",
        )

    def _slow(self) -> ProblemError:
        return ProblemError(
            "BODY_TIMED_OUT",
            Meaning(HTTPStatus.REQUEST_TIMEOUT, "DEADLINE_EXCEEDED", "Send it again, faster."),
            f"the body had not come in after {self._bounds.body_timeout_ms} ms",
            headers={"Connection": "close"},
        )

    def _late(self) -> ProblemError:
        return timed_out(
            f"there was no answer within {self._bounds.request_timeout_ms} ms; what the request "
            "began goes on by itself"
        )
