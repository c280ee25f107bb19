"""Nobody keeps a connection without asking or reading."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from uvicorn import Config
from uvicorn.server import ServerState

from tidelog_admin_api import http_connection
from tidelog_admin_api.http_connection import LEAST_READ_BYTES, HttpConnection

HEAD = b"GET / HTTP/1.1\r\nHost: gateway\r\n"


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.held_bytes = 0
        self.closed = self.aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.held_bytes

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class FakeLoop:
    """`pass_time` calls what is due by then, whatever its time."""

    def __init__(self) -> None:
        self.due: list[SimpleNamespace] = []

    def call_later(self, _: float, call: Callable[..., None], *arguments: Any) -> SimpleNamespace:
        timer = SimpleNamespace(call=call, arguments=arguments)
        timer.cancel = lambda: self.due.remove(timer) if timer in self.due else None
        self.due.append(timer)
        return timer

    def create_task(self, coroutine: Any) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine)

    def pass_time(self) -> None:
        due, self.due = self.due, []
        for timer in due:
            timer.call(*timer.arguments)


class Connected:
    def __init__(self, state: ServerState | None = None) -> None:
        self.loop = FakeLoop()
        self.transport = FakeTransport()
        config = Config(PlainTextResponse("calm"), http=HttpConnection, ws="none", log_config=None)
        self.connection = HttpConnection(
            config,
            state or ServerState(),
            {},
            self.loop,  # type: ignore[arg-type]  # as much of it as is asked for
        )
        self.connection.connection_made(self.transport)

    @property
    def problem(self) -> dict[str, Any]:
        head, _, body = self.transport.written.partition(b"\r\n\r\n")
        assert b"application/problem+json" in head
        assert b"connection: close" in head.lower()
        told: dict[str, Any] = json.loads(body)
        return told


def test_whoever_asks_nothing_is_cut_off() -> None:
    connected = Connected()
    connected.loop.pass_time()
    assert connected.transport.aborted


def test_a_head_that_comes_byte_by_byte_gains_no_time() -> None:
    connected = Connected()
    for byte in HEAD:
        connected.connection.data_received(bytes([byte]))
    assert len(connected.loop.due) == 1
    connected.loop.pass_time()
    assert connected.transport.aborted


async def test_whoever_has_asked_is_answered_in_peace() -> None:
    connected = Connected()
    connected.connection.data_received(HEAD + b"\r\n")
    assert connected.loop.due == []
    await asyncio.gather(*connected.connection.tasks)
    assert connected.transport.written.endswith(b"calm")
    connected.connection.data_received(HEAD)
    connected.loop.pass_time()
    assert connected.transport.aborted


def test_whoever_does_not_read_is_cut_off() -> None:
    connected = Connected()
    connected.loop.due.clear()
    connected.transport.held_bytes = 3 * LEAST_READ_BYTES
    connected.connection.pause_writing()
    connected.transport.held_bytes -= LEAST_READ_BYTES
    connected.loop.pass_time()
    assert not connected.transport.aborted
    connected.transport.held_bytes -= LEAST_READ_BYTES - 1
    connected.loop.pass_time()
    assert connected.transport.aborted


def test_whoever_has_read_is_not_watched_any_more() -> None:
    connected = Connected()
    connected.loop.due.clear()
    connected.connection.pause_writing()
    connected.connection.resume_writing()
    assert connected.loop.due == []


def test_more_connections_than_may_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MAX_CONNECTIONS", 1)
    state = ServerState()
    first, second = Connected(state), Connected(state)
    assert second.problem["code"] == "TOO_MANY_CONNECTIONS"
    assert (first.transport.closed, second.transport.closed) == (False, True)


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        (b"tide\r\n\r\n", 400, "MALFORMED_REQUEST"),
        (HEAD + b"X-Tide: " + b"a" * 70_000, 431, "HEAD_TOO_LARGE"),
    ],
)
def test_what_is_no_http_is_a_problem(said: bytes, status: int, code: str) -> None:
    connected = Connected()
    connected.connection.data_received(said)
    assert (connected.problem["status"], connected.problem["code"]) == (status, code)
    assert connected.transport.closed
