"""The bounds of the metrics server, with real connections. Every client address is one of the
loopback network."""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog import metrics_endpoint
from tidelog.caller_limits import (
    METRICS_CONNECTIONS,
    METRICS_CONNECTIONS_PER_CLIENT,
    METRICS_LIMITS,
    CallerLimits,
    Callers,
)
from tidelog.metrics_endpoint import MAX_HEAD_BYTES, HttpResponse, MetricsEndpoint, SharedAnswers

PER_CLIENT = METRICS_LIMITS[METRICS_CONNECTIONS_PER_CLIENT]
ALL = METRICS_LIMITS[METRICS_CONNECTIONS]
SCRAPER = "127.0.0.9"
WAIT_S = 20.0
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

Start = Callable[[str, list[tuple[str, str]]], Any]


def app(environ: dict[str, Any], start: Start) -> list[bytes]:
    known = environ["REQUEST_METHOD"] == "GET"
    start("200 OK" if known else "405 Method Not Allowed", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


class Serving:
    """A metrics server, and the connections that tests open to it."""

    def __init__(self, stack: ExitStack, endpoint: MetricsEndpoint) -> None:
        self.endpoint = endpoint
        self._stack = stack

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        connection = socket.create_connection(
            ("127.0.0.1", self.endpoint.server_port), timeout=WAIT_S, source_address=(address, 0)
        )
        return self._stack.enter_context(connection)

    def ask(self, request: bytes, address: str = SCRAPER) -> bytes:
        """Returns the answer up to the end of the connection."""
        connection = self.connect(address)
        connection.sendall(request)
        return received(connection)

    def is_scraped(self, address: str = SCRAPER) -> bool:
        return self.ask(REQUEST, address).endswith(b"\r\n\r\n/metrics")


@contextmanager
def serving(
    served: metrics_endpoint.App = app,
    on_closed: metrics_endpoint.OnClosed = lambda _address, _limit: None,
) -> Iterator[Serving]:
    endpoint = MetricsEndpoint("127.0.0.1", 0, served, on_closed)
    running = threading.Thread(target=endpoint.serve_forever, args=(0.01,), daemon=True)
    running.start()
    try:
        with ExitStack() as stack:
            yield Serving(stack, endpoint)
    finally:
        endpoint.shutdown()
        running.join()
        endpoint.server_close()


def received(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection ends by a timeout while a test runs."""
    monkeypatch.setattr(metrics_endpoint, "HEAD_TIMEOUT_S", 10 * WAIT_S)


@pytest.mark.usefixtures("patient")
def test_hundreds_of_idle_connections_leave_a_scrape_answered_and_threads_bounded() -> None:
    before, callers = threading.active_count(), Callers(CallerLimits())
    with serving(
        on_closed=lambda address, limit: callers.metrics_connection_closed(address, limit, 5)
    ) as server:
        idle = [server.connect() for _ in range(400)]
        assert server.is_scraped()
        assert server.is_scraped("127.0.0.1")
        # A thread may end a moment after its connection.
        assert threading.active_count() - before <= PER_CLIENT + 5
        assert [each for each in idle if is_open(each)] == idle[-PER_CLIENT + 1 :]
    (limited,) = callers.limited(5)
    assert (limited.address, limited.limit, limited.value, limited.rejected) == (
        "127.0.0.1",
        METRICS_CONNECTIONS_PER_CLIENT,
        PER_CLIENT,
        400 + 1 - PER_CLIENT,
    )
    assert callers.rejected == {METRICS_CONNECTIONS_PER_CLIENT: limited.rejected}


@pytest.mark.usefixtures("patient")
def test_idle_connections_of_many_addresses_leave_a_scrape_answered() -> None:
    before, closed = threading.active_count(), Counter[tuple[str, str]]()
    with serving(on_closed=lambda *which: closed.update([which])) as server:
        crowd = [server.connect("127.0.0.2") for _ in range(PER_CLIENT)]
        others = [server.connect(f"127.0.1.{n}") for n in range(1, ALL - PER_CLIENT + 1)]
        assert server.is_scraped()
        assert threading.active_count() - before <= ALL + 5
        # The address with most connections loses the one that has waited longest.
        assert [each for each in crowd if is_open(each)] == crowd[1:]
        assert all(is_open(each) for each in others)
    assert closed == {("127.0.0.2", METRICS_CONNECTIONS): 1}


@pytest.mark.usefixtures("patient")
def test_connections_that_are_being_answered_are_not_closed_for_new_ones() -> None:
    arrived, go = threading.Semaphore(0), threading.Event()

    class Waiting(SharedAnswers):
        def answer(self, request: dict[str, str]) -> HttpResponse:
            arrived.release()
            assert go.wait(WAIT_S)
            return super().answer(request)

    closed = Counter[tuple[str, str]]()
    with serving(on_closed=lambda *which: closed.update([which])) as server:
        server.endpoint.answers = Waiting(app)
        asked = [server.connect() for _ in range(PER_CLIENT)]
        for connection in asked:
            connection.sendall(REQUEST)
        assert all(arrived.acquire(timeout=WAIT_S) for _ in asked)
        assert received(server.connect()).startswith(b"HTTP/1.0 503 ")
        go.set()
        assert all(received(each).endswith(b"/metrics") for each in asked)
    assert closed == {("127.0.0.1", METRICS_CONNECTIONS_PER_CLIENT): 1}


def test_a_head_that_arrives_byte_by_byte_ends_with_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_endpoint, "HEAD_TIMEOUT_S", 0.5)
    with serving() as server:
        slow = server.connect()
        answered = False
        for byte in REQUEST[:-1] * 100:
            slow.sendall(bytes([byte]).replace(b"\r", b"x").replace(b"\n", b"x"))
            answered = bool(select.select([slow], [], [], 0.02)[0])
            if answered:
                break
        assert answered
        assert received(slow).startswith(b"HTTP/1.0 408 Request Timeout\r\n")
        # One that sends nothing ends in the same way.
        assert b"not complete after" in received(server.connect())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /" + bytes(MAX_HEAD_BYTES).replace(b"\0", b"a"), b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5_000 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", b"431"),
        (b"oceans\r\n\r\n", b"400"),
        (b"GET / HTTP/7\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\n\r\n", b"400"),
        (b"SAIL / HTTP/1.1\r\n\r\n", b"501"),
        (b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000), b"405"),
    ],
)
def test_a_bad_request_has_a_clear_status(request_bytes: bytes, status: bytes) -> None:
    with serving() as server:
        answer = server.ask(request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.splitlines()[0].split()[:2] == [b"HTTP/1.0", status]
    assert body


def test_a_request_that_cannot_be_answered_gets_a_500_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(_: dict[str, Any], __: Start) -> list[bytes]:
        raise ValueError("no such version")

    with serving(failing) as server:
        assert server.ask(REQUEST).startswith(b"HTTP/1.0 500 ")
    assert "a request for metrics was not answered" in caplog.text
    assert "no such version" in caplog.text


def test_a_client_that_does_not_take_its_answer_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_endpoint, "SEND_TIMEOUT_S", 0.2)
    size, began = 64 << 20, threading.Event()
    threads: list[threading.Thread] = []

    def large(_: dict[str, Any], start: Start) -> list[bytes]:
        threads.append(threading.current_thread())
        start("200 OK", [])
        began.set()
        return [bytes(size)]

    with serving(large) as server:
        connection = server.connect()
        connection.sendall(REQUEST)
        assert began.wait(WAIT_S)
        threads[0].join(WAIT_S)
        assert not threads[0].is_alive()
        with suppress(ConnectionResetError):
            assert len(received(connection)) < size


def test_without_free_descriptors_the_server_tries_again_only_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(metrics_endpoint, "time", SimpleNamespace(sleep=pauses.append))

    def accept(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(HTTPServer, "get_request", accept)
    endpoint = MetricsEndpoint("127.0.0.1", 0, app)
    with closing(endpoint.socket), pytest.raises(OSError, match="Too many open files"):
        endpoint.get_request()
    assert pauses == [metrics_endpoint.ACCEPT_RETRY_S]


def test_requests_that_wait_for_an_answer_share_it_if_they_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrived, go = threading.Semaphore(0), threading.Event()
    active: list[str] = []
    produced: list[str] = []

    def monotonic() -> float:
        arrived.release()
        return time.monotonic()

    monkeypatch.setattr(metrics_endpoint, "time", SimpleNamespace(monotonic=monotonic))

    def counted(environ: dict[str, Any], start: Start) -> list[bytes]:
        assert not active
        active.append(environ["PATH_INFO"])
        assert go.wait(WAIT_S)
        produced.append(active.pop())
        return app(environ, start)

    answers, found = SharedAnswers(counted), list[bytes]()

    def ask(path: str) -> threading.Thread:
        request = {"REQUEST_METHOD": "GET", "PATH_INFO": path}
        thread = threading.Thread(target=lambda: found.append(answers.answer(request).body))
        thread.start()
        assert arrived.acquire(timeout=WAIT_S)
        return thread

    threads = [ask("/metrics") for _ in range(7)]
    go.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert found == [b"/metrics"] * 7
    assert produced == ["/metrics"]
    ask("/other").join(WAIT_S)
    ask("/other").join(WAIT_S)
    assert produced == ["/metrics", "/other", "/other"]


def test_a_request_that_waits_too_long_for_another_one_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_endpoint, "TURN_TIMEOUT_S", 0.0)
    nested: list[HttpResponse] = []

    def asks_again(environ: dict[str, Any], start: Start) -> list[bytes]:
        nested.append(answers.answer(environ))
        return app(environ, start)

    answers = SharedAnswers(asks_again)
    assert answers.answer({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}).status == "200 OK"
    assert [each.status for each in nested] == ["503 Service Unavailable"]


def test_connections_that_a_scraper_left_while_the_process_was_paused_are_not_reported() -> None:
    closed: list[str] = []
    resumed = threading.Event()

    def slow(environ: dict[str, Any], start: Start) -> list[bytes]:
        assert resumed.wait(WAIT_S)
        return app(environ, start)

    endpoint = MetricsEndpoint("127.0.0.1", 0, slow, lambda address, _: closed.append(address))
    with ExitStack() as stack:
        paused = Serving(stack, endpoint)
        for _ in range(3 * PER_CLIENT):
            connection = paused.connect(SCRAPER)
            connection.sendall(REQUEST)
            connection.close()
        # It is accepted after the others.
        last = paused.connect("127.0.0.8")
        last.sendall(REQUEST)
        running = threading.Thread(target=endpoint.serve_forever, args=(0.01,), daemon=True)
        running.start()
        try:
            deadline = time.monotonic() + WAIT_S
            while "127.0.0.8" not in {each.address for each in [*endpoint._open.values()]}:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            resumed.set()
            assert received(last).endswith(b"/metrics")
        finally:
            endpoint.shutdown()
            endpoint.server_close()
    assert closed == []
