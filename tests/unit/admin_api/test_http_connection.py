"""Idle connections and clients that do not read are disconnected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from tidelog_admin_api import http_connection
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.http_connection import (
    FRAMING_BYTES,
    LEAST_READ_BYTES,
    MAX_HEADERS,
    HttpConnection,
)
from tidelog_admin_api.limits import Usage

HEAD = b"GET / HTTP/1.1\r\nHost: gateway\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\n\r\n"
SMALLEST_CHUNK = b"1\r\n \r\n"
CALM = PlainTextResponse("calm")
BOUNDS = AdminApiConfig(max_connections_per_client=2, max_requests_per_client=2)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(b"%d bytes" % len(body))(scope, receive, send)


class FakeTransport(asyncio.Transport):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.written = b""
        self.held_bytes = 0
        self.closed = self.aborted = self.ended = False
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.address, 40_000) if name == "peername" else default

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
    """`pass_time` runs every callback that is due by then."""

    def __init__(self) -> None:
        self.due: list[SimpleNamespace] = []
        self.turns: list[SimpleNamespace] = []

    def call_soon(self, call: Callable[[], None]) -> SimpleNamespace:
        turn = SimpleNamespace(call=call)
        turn.cancel = lambda: self.turns.remove(turn) if turn in self.turns else None
        self.turns.append(turn)
        return turn

    def turn(self) -> None:
        turns, self.turns = self.turns, []
        for turn in turns:
            turn.call()

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
    """`state` and `usage` are shared with other connections."""

    def __init__(
        self,
        state: ServerState | None = None,
        *,
        app: ASGIApp = CALM,
        address: str = "10.0.0.1",
        usage: Usage | None = None,
        bounds: AdminApiConfig = BOUNDS,
    ) -> None:
        self.loop = FakeLoop()
        self.transport = FakeTransport(address)
        self.connection = HttpConnection(
            Config(app, ws="none", log_config=None, proxy_headers=False),
            state or ServerState(),
            {},
            self.loop,  # type: ignore[arg-type]  # only the methods in use
            bounds=bounds,
            usage=usage or Usage(),
        )
        self.connection.connection_made(self.transport)

    @property
    def problem(self) -> dict[str, Any]:
        head, _, body = self.transport.written.partition(b"\r\n\r\n")
        assert b"application/problem+json" in head
        assert b"connection: close" in head.lower()
        document: dict[str, Any] = json.loads(body)
        return document


def test_an_idle_connection_is_closed() -> None:
    connected = Connected()
    connected.loop.pass_time()
    assert connected.transport.aborted


def test_a_trickled_request_head_gains_no_time() -> None:
    connected = Connected()
    for byte in HEAD:
        connected.connection.data_received(bytes([byte]))
    assert len(connected.loop.due) == 1
    connected.loop.pass_time()
    assert connected.transport.aborted


async def test_a_connection_with_a_pending_request_is_not_closed() -> None:
    connected = Connected()
    connected.connection.data_received(HEAD + b"\r\n")
    assert connected.loop.due == []
    await asyncio.gather(*connected.connection.tasks)
    assert connected.transport.written.endswith(b"calm")
    connected.connection.data_received(HEAD)
    connected.loop.pass_time()
    assert connected.transport.aborted


def test_a_client_that_does_not_read_is_disconnected() -> None:
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


def test_a_client_that_has_read_its_response_is_no_longer_timed() -> None:
    connected = Connected()
    connected.loop.due.clear()
    connected.connection.pause_writing()
    connected.connection.resume_writing()
    assert connected.loop.due == []


def test_connections_beyond_the_limit_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_malformed_http_is_answered_with_a_problem(said: bytes, status: int, code: str) -> None:
    connected = Connected()
    connected.connection.data_received(said)
    while connected.loop.turns:
        connected.loop.turn()
    assert (connected.problem["status"], connected.problem["code"]) == (status, code)
    connected.loop.pass_time()
    assert connected.transport.closed
    assert connected.transport.written.count(b"HTTP/1.1") == 1


def test_one_client_cannot_take_all_connections() -> None:
    state, usage = ServerState(), Usage()
    first, second, third = (Connected(state, usage=usage) for _ in range(3))
    other = Connected(state, usage=usage, address="10.0.0.2")
    assert (third.problem["status"], third.problem["code"]) == (429, "TOO_MANY_CONNECTIONS")
    assert "10.0.0.1 has 2 open connections" in third.problem["detail"]
    assert [each.transport.closed for each in (first, second, third, other)] == [
        False,
        False,
        True,
        False,
    ]
    assert [each.limit for each in usage.limited_clients()] == ["max_connections_per_client"]
    for each in (first, third):
        each.connection.connection_lost(None)
    assert not Connected(state, usage=usage).transport.closed
    for each in (second, other):
        each.connection.connection_lost(None)
    assert dict(usage.connections) == {"10.0.0.1": 1}


def parsed_bytes(connected: Connected) -> int:
    """The number of parsed body bytes; consumes them from the connection as the application
    does."""
    body = connected.connection.cycle.body
    parsed = len(body)
    body.clear()
    return parsed


async def test_large_input_is_parsed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "PARSING_MS", 0)
    connected = Connected(app=echo)
    connected.connection.data_received(CHUNKED)
    connected.connection.data_received(SMALLEST_CHUNK * 20_000)
    pieces = [parsed_bytes(connected)]
    while connected.loop.turns:
        assert not connected.transport.reading
        connected.loop.turn()
        pieces.append(parsed_bytes(connected))
    assert connected.transport.reading
    assert sum(pieces) == 20_000
    # Parsing takes a few milliseconds each.
    assert max(pieces) <= 500
    connected.connection.connection_lost(None)


async def test_a_body_counts_with_the_framing_of_its_chunks() -> None:
    bounds = AdminApiConfig(max_body_bytes=100_000)
    connected = Connected(app=echo, bounds=bounds)
    connected.connection.data_received(CHUNKED)
    sent = 0
    while not connected.transport.written and sent < 1 << 20:
        connected.connection.data_received(SMALLEST_CHUNK * 1_000)
        sent += 1_000 * len(SMALLEST_CHUNK)
        while connected.loop.turns:
            connected.loop.turn()
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert connected.problem["code"] == "BODY_TOO_LARGE"
    assert 125_000 < sent - FRAMING_BYTES < 140_000
    assert connected.transport.ended
    await asyncio.gather(*connected.connection.tasks, return_exceptions=True)
    connected.connection.data_received(SMALLEST_CHUNK)
    connected.loop.pass_time()
    assert connected.transport.closed


async def test_a_large_body_arrives_intact() -> None:
    connected = Connected(app=echo)
    head = b"POST / HTTP/1.1\r\nHost: gateway\r\nContent-Length: 300000\r\n\r\n"
    connected.connection.data_received(head + bytes(300_000) + HEAD + b"\r\n")
    for _ in range(200):
        connected.loop.turn()
        await asyncio.sleep(0)
    assert connected.transport.written.count(b"HTTP/1.1 200 OK") == 2
    assert b"300000 bytes" in connected.transport.written
    assert connected.transport.written.endswith(b"0 bytes")
    assert connected.transport.reading
    assert not connected.transport.ended


async def test_pipelined_requests_are_answered_one_by_one() -> None:
    connected = Connected()
    connected.connection.data_received((HEAD + b"\r\n") * 400)
    assert len(connected.connection.tasks) == 1
    for _ in range(1_800):
        connected.loop.turn()
        await asyncio.sleep(0)
        assert len(connected.connection.tasks) <= 2
    assert connected.transport.written.count(b"calm") == 400


async def test_an_early_answer_closes_the_connection() -> None:
    connected = Connected()
    head = b"POST / HTTP/1.1\r\nHost: gateway\r\nContent-Length: 1000\r\n\r\n{"
    connected.connection.data_received(head)
    await asyncio.gather(*connected.connection.tasks)
    assert b"\r\nconnection: close\r\n" in connected.transport.written
    assert connected.transport.written.endswith(b"calm")
    # The connection closes after the client has read the answer or timed out.
    assert (connected.transport.ended, connected.transport.closed) == (True, False)
    connected.connection.data_received(bytes(999) + HEAD + b"\r\n")
    assert connected.transport.written.count(b"calm") == 1
    connected.loop.pass_time()
    assert connected.transport.closed


async def test_the_answer_to_a_body_that_is_not_read_arrives() -> None:
    config = Config(CALM, ws="none", log_config=None, proxy_headers=False)
    state, usage = ServerState(), Usage()
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(config, state, {}, bounds=BOUNDS, usage=usage), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"POST / HTTP/1.1\r\nHost: gateway\r\nContent-Length: 1000000\r\n\r\n")
    for _ in range(20):
        writer.write(bytes(50_000))
        await asyncio.sleep(0.001)
    assert (await reader.read()).endswith(b"calm")
    writer.close()
    server.close()
    for _ in range(500):
        await asyncio.sleep(0.01 if state.connections else 0)
    assert not state.connections
    assert not usage.connections


async def test_headers_beyond_the_limit_do_not_reach_the_application() -> None:
    for count, status in ((MAX_HEADERS - 1, b"200"), (MAX_HEADERS, b"431")):
        connected = Connected()
        connected.connection.data_received(HEAD + b"a:b\n" * count + b"\r\n")
        while connected.loop.turns:
            connected.loop.turn()
        await asyncio.gather(*connected.connection.tasks)
        assert connected.transport.written.startswith(b"HTTP/1.1 " + status)
        assert (b"calm" in connected.transport.written) == (status == b"200")
