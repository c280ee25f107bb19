"""An HTTP server for metrics, in threads, whose connections and requests are bounded.

The standard library's server starts a thread for each connection and waits for its request
without end. Here

- a connection carries one request, and the head of the request has limits on size and time;
- each client address, and all of them together, have a limit on connections. At the limit, the
  connection that has waited longest for its request is closed in favour of the new one;
- one answer is produced at a time, and equal requests that wait for it share it.
"""

from __future__ import annotations

import io
import logging
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple

from tidelog.caller_limits import (
    METRICS_CONNECTIONS,
    METRICS_CONNECTIONS_PER_CLIENT,
    METRICS_LIMITS,
)

MAX_HEAD_BYTES = 16 << 10
# From the connection until the head of its request is complete.
HEAD_TIMEOUT_S = 5.0
# Until the client has taken the answer.
SEND_TIMEOUT_S = 10.0
# How long a request waits for the answer to another one. Together with a collection, which takes
# up to 5 s, this is shorter than Prometheus' default timeout of a scrape, 10 s.
TURN_TIMEOUT_S = 4.0
# The rest of a request is read after its answer for this long: otherwise TCP resets the
# connection, and the client may lose the answer.
LINGER_S = 1.0
# How long a closed connection may take to end before the new one is rejected.
CLOSING_TIMEOUT_S = 1.0
# The pause after a connection could not be accepted, for lack of descriptors.
ACCEPT_RETRY_S = 0.1

_BUSY = b"too many connections or requests for metrics are in progress; try again\n"
_REJECTION = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BUSY), _BUSY)
)

_NOT_ANSWERED = "a request for metrics was not answered"

_log = logging.getLogger(__name__)

# A WSGI application, such as `prometheus_client.make_wsgi_app` returns.
App = Callable[[dict[str, Any], Callable[[str, list[tuple[str, str]]], Any]], Iterable[bytes]]
# Reports a connection closed or rejected: its address, and which of METRICS_LIMITS it exceeded.
# Called in the server's thread.
OnClosed = Callable[[str, str], None]


class HttpResponse(NamedTuple):
    """`status`: code and reason, as in WSGI."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


class SharedAnswers:
    """Answers requests one at a time.

    A request that arrives while an equal one is being answered gets the same answer.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._turn = threading.Lock()
        self._last: tuple[dict[str, str], HttpResponse, float] | None = None

    def answer(self, request: dict[str, str]) -> HttpResponse:
        """`request`: the WSGI variables on which the answer depends."""
        arrived = time.monotonic()
        if not self._turn.acquire(timeout=TURN_TIMEOUT_S):
            return HttpResponse("503 Service Unavailable", [("Content-Type", "text/plain")], _BUSY)
        try:
            if self._last is not None:
                of_request, answer, ended = self._last
                if of_request == request and ended >= arrived:
                    return answer
            answer = self._produce(request)
            self._last = (request, answer, time.monotonic())
        finally:
            self._turn.release()
        return answer

    def _produce(self, request: dict[str, str]) -> HttpResponse:
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(self._app(dict(request), lambda *start: begun.append(start)))
        ((status, headers),) = begun
        return HttpResponse(status, headers, body)


class HeadTooLargeError(Exception):
    """The head of a request exceeds MAX_HEAD_BYTES."""


def read_head(connection: socket.socket) -> bytes:
    """Returns what arrives until the head of a request, or the connection, ends.

    Raises `TimeoutError` and `HeadTooLargeError`.
    """
    until = time.monotonic() + HEAD_TIMEOUT_S
    head = b""
    while b"\n\r\n" not in head and b"\n\n" not in head:
        if len(head) > MAX_HEAD_BYTES:
            raise HeadTooLargeError
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        piece = connection.recv(MAX_HEAD_BYTES + 1 - len(head))
        if not piece:
            break
        head += piece
    return head


class _Handler(BaseHTTPRequestHandler):
    server: MetricsEndpoint
    # Without it, the answer to a first line that is not HTTP would have no status line.
    default_request_version = "HTTP/1.0"

    def handle(self) -> None:
        # An error of the head is answered without any of it.
        self.requestline = self.command = ""
        self.request_version = self.default_request_version
        try:
            head = read_head(self.connection)
        except TimeoutError:
            self.send_error(
                HTTPStatus.REQUEST_TIMEOUT,
                explain=f"the head of the request was not complete after {HEAD_TIMEOUT_S:.0f} s",
            )
        except HeadTooLargeError:
            self.send_error(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                explain=f"the head of the request is larger than {MAX_HEAD_BYTES} bytes",
            )
        else:
            self.server.set_waiting(self.connection, False)
            self.connection.settimeout(SEND_TIMEOUT_S)
            self.rfile = io.BytesIO(head)
            super().handle()

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        request = {
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "HTTP_ACCEPT": self.headers.get("Accept", ""),
            "HTTP_ACCEPT_ENCODING": self.headers.get("Accept-Encoding", ""),
        }
        try:
            answer = self.server.answers.answer(request)
        except Exception as error:
            # prometheus-client fails so at some values of Accept, too.
            # Before the answer: who has read it finds the line.
            _log.warning(_NOT_ANSWERED, exc_info=error)
            explain = f"the metrics could not be written ({type(error).__name__})"
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, explain=explain)
            return
        code, _, reason = answer.status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    # The application answers the methods that it does not know, too.
    do_GET = do_HEAD = do_OPTIONS = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def finish(self) -> None:
        super().finish()
        self.server.set_waiting(self.connection, True)
        until = time.monotonic() + LINGER_S
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while (left := until - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(MAX_HEAD_BYTES):
                    break

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Logs no requests."""


@dataclass(slots=True)
class _Connection:
    """An open connection.

    - `is_waiting`: it has not sent its request yet, or already has its answer.
    - `is_closed`: it was closed in favour of another one, and its thread is about to end.
    """

    address: str
    is_waiting: bool = True
    is_closed: bool = False


class MetricsEndpoint(ThreadingMixIn, HTTPServer):
    """Serves `app` on one port. `serve_forever` runs it."""

    daemon_threads = True
    request_queue_size = 128
    # Two processes must not share a port.
    allow_reuse_port = False

    def __init__(
        self,
        host: str,
        port: int,
        app: App,
        on_closed: OnClosed = lambda _address, _limit: None,
    ) -> None:
        """Binds the port. Raises `OSError`."""
        self.answers = SharedAnswers(app)
        self._on_closed = on_closed
        self._open: dict[Any, _Connection] = {}
        self._changed = threading.Condition()
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, bound = infos[0]
        super().__init__(bound[:2], _Handler)  # type: ignore[arg-type]  # an address with a host

    def set_waiting(self, connection: socket.socket, is_waiting: bool) -> None:
        """Raises `ConnectionAbortedError` if the connection was closed meanwhile."""
        with self._changed:
            known = self._open[connection]
            if known.is_closed and not is_waiting:
                raise ConnectionAbortedError
            known.is_waiting = is_waiting

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # The connection stays in the queue, so that the server would try again at once.
            time.sleep(ACCEPT_RETRY_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        address = str(client_address[0])
        if "." in address:
            address = address.removeprefix("::ffff:")
        if not self._has_room(address, request):
            request.setblocking(False)
            with suppress(OSError):
                request.send(_REJECTION)
            self.shutdown_request(request)
            return
        with self._changed:
            self._open[request] = _Connection(address)
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        super().close_request(request)
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        error = sys.exc_info()[1]
        # A client that leaves, or reads its answer too slowly, is no fault.
        if not isinstance(error, ConnectionError | TimeoutError):
            _log.warning(_NOT_ANSWERED, exc_info=error)

    def _has_room(self, address: str, new: socket.socket) -> bool:
        """Makes room for the address's new connection, if there is none.

        A connection that its client has left is dropped first, and not reported: those of a
        scraper gather while the process is paused."""
        with self._changed:
            of_address = Counter(each.address for each in self._open.values())
            if of_address[address] >= METRICS_LIMITS[METRICS_CONNECTIONS_PER_CLIENT]:
                limit, crowded = METRICS_CONNECTIONS_PER_CLIENT, {address}
            elif len(self._open) >= METRICS_LIMITS[METRICS_CONNECTIONS]:
                limit, most = METRICS_CONNECTIONS, max(of_address.values())
                crowded = {each for each, count in of_address.items() if count == most}
            else:
                return True
            if _has_left(new):
                return False
            # Connections are in the order in which they were accepted.
            of_crowded = [each for each in self._open.items() if each[1].address in crowded]
            left = [each for each in of_crowded if each[1].is_closed or _has_left(each[0])]
            waiting = [each for each in of_crowded if each[1].is_waiting]
            # First those that end at once.
            left.sort(key=lambda each: not each[1].is_waiting)
            request, closed = next(iter(left + waiting), (None, _Connection(address)))
            if request is not None:
                closed.is_closed = True
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
        if not left:
            # Outside the lock, because it logs, and a log may block.
            self._on_closed(closed.address, limit)
        if request is None:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: request not in self._open, CLOSING_TIMEOUT_S)


def _has_left(connection: socket.socket) -> bool:
    """Whether the client has closed its end."""
    poll = select.poll()
    try:
        poll.register(connection, select.POLLRDHUP)
    except ValueError:  # it is closed here as well
        return True
    return bool(poll.poll(0))
