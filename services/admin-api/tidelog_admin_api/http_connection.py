"""An HTTP connection with limits that uvicorn does not have.

Uvicorn limits the time between two requests. This class also limits

- the time until the head of a request is complete,
- how slowly a client may read an answer,
- the number of connections,
- how long the event loop parses received data without a break.

If an answer begins before the body of its request is complete, the connection ends after that
answer: the rest of the body is not read, so the next request cannot be found.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tidelog_admin_api.config import MAX_CONNECTIONS, AdminApiConfig
from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.limits import Usage, body_too_large
from tidelog_admin_api.lingering import LingeringTransport
from tidelog_admin_api.problems import (
    ProblemError,
    malformed,
    response,
    too_many_connections,
    unavailable,
)

# From the opening of the connection, or the first byte of a request, to the end of its head.
HEAD_TIMEOUT_MS = 10_000
# While an answer waits for its client, the client has to read LEAST_READ_BYTES in this time.
READER_TIMEOUT_MS = 30_000
LEAST_READ_BYTES = 16 << 10
# Received data is parsed in pieces of this size, for PARSING_MS before other tasks run. A piece
# holds several hundred of the smallest chunks.
PIECE_BYTES = 2 << 10
PARSING_MS = 1
# Maximum size of the chunk framing of a body: this plus a quarter of the largest body.
FRAMING_BYTES = 64 << 10
# Each layer that processes a request iterates over its headers.
MAX_HEADERS = 128

_CLOSE = (b"connection", b"close")


class HttpConnection(H11Protocol):
    """A connection that enforces `bounds` and is counted in `usage`."""

    _head_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None
    transport: LingeringTransport

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: AdminApiConfig,
        usage: Usage,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._usage = usage
        self._answering = self.app
        self.app = self._answer
        # Received data that is not parsed yet, and the scheduled call that continues to parse it.
        self._rest = bytearray()
        self._turn: asyncio.Handle | None = None
        # Size of the body in progress, with its framing.
        self._wire_bytes = 0

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        lingering = LingeringTransport(
            transport, self.loop, self._has_unread, self._reading_resumed
        )
        super().connection_made(lingering)
        connections, most = self._usage.connections, self._bounds.max_connections_per_client
        connections[self._address] += 1
        if connections[self._address] > most:
            self._usage.rejected(self._address, "max_connections_per_client", most)
            self._reject(too_many_connections(self._address, most))
            return
        if len(self.connections) > MAX_CONNECTIONS and not self._evict_waiting():
            self._usage.rejected(self._address, "connections", MAX_CONNECTIONS)
            self._reject(
                unavailable(
                    "TOO_MANY_CONNECTIONS",
                    f"{MAX_CONNECTIONS} connections are open, the maximum",
                )
            )
            return
        self._usage.waiting[self] = self._address
        self._watch_head()

    def _evict_waiting(self) -> bool:
        """Closes the connection that has waited longest for its request, of an address that has
        most of these. Returns False if all connections are being answered."""
        waiting = self._usage.waiting
        if not waiting:
            return False
        most = max(Counter(waiting.values()).items(), key=lambda each: each[1])[0]
        oldest = next(each for each, address in waiting.items() if address == most)
        del waiting[oldest]
        self._usage.rejected(most, "connections", MAX_CONNECTIONS)
        oldest.abort()
        return True

    def abort(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head_timer)
        _cancel(self._reader_timer)
        if self._turn is not None:
            self._turn.cancel()
        self._rest.clear()
        self._usage.waiting.pop(self, None)
        self.transport.lost()
        connections = self._usage.connections
        connections[self._address] -= 1
        if not connections[self._address]:
            del connections[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._rest += data
        if self._turn is None and not self.flow.read_paused:
            self._parse()
        if self._rest:
            self.transport.pause_reading()

    def _parse(self) -> None:
        """Parses at least one piece, and further ones for PARSING_MS."""
        self._turn = None
        until = time.monotonic() + PARSING_MS / 1000
        while not self.flow.read_paused:
            self._parse_piece()
            if self.transport.is_closing():
                self._rest.clear()
                return
            if not self._rest or time.monotonic() >= until:
                break
        if not self.flow.read_paused:
            self._reading_resumed()

    def _parse_piece(self) -> None:
        piece = bytes(self._rest[:PIECE_BYTES])
        del self._rest[:PIECE_BYTES]
        before = self.cycle
        super().data_received(piece)
        has_request = self.cycle is not None and not self.cycle.response_complete
        if has_request:
            self._usage.waiting.pop(self, None)
        if not has_request:
            self._watch_head()
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._wire_bytes = self._wire_bytes + len(piece) if self.cycle is before else 0
        if self.cycle is not None and self.cycle.more_body:
            self._check_framing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._usage.waiting[self] = self._address

    def _reading_resumed(self) -> None:
        """Reads more data if the received data is parsed."""
        if not self._rest:
            self.transport.inner.resume_reading()
        elif self._turn is None:
            self._turn = self.loop.call_soon(self._parse)

    def _check_framing(self) -> None:
        """Limits the framing of chunks, which the limits of a request do not count."""
        largest = self._bounds.max_body_bytes
        if self._wire_bytes > largest + largest // 4 + FRAMING_BYTES:
            self._reject(body_too_large(self._bounds, "with the framing of its chunks "))
            # A handler that reads the body or starts its answer ends as if the client had left.
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _has_unread(self) -> bool:
        return bool(self._rest) or (self.cycle is not None and self.cycle.more_body)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self.cycle

        async def begin(message: Message) -> None:
            if message["type"] == "http.response.start" and cycle.more_body:
                headers = [each for each in message["headers"] if each[0].lower() != _CLOSE[0]]
                message = {**message, "headers": [*headers, _CLOSE]}
            await send(message)

        count = len(scope["headers"])
        if count > MAX_HEADERS:
            error = _head_too_large(
                f"the request has {count} headers; the maximum is {MAX_HEADERS}"
            )
            await response(error, scope["path"], "")(scope, receive, begin)
        else:
            await self._answering(scope, receive, begin)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        _cancel(self._reader_timer)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answers data that is not HTTP. Uvicorn calls it while an exception is handled."""
        error = sys.exc_info()[1]
        hint = getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST)
        if hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            self._reject(_head_too_large("the head of the request is too large"))
        else:
            self._reject(malformed(f"the request is not valid HTTP: {error}"))

    def _watch_head(self) -> None:
        """Starts the timer unless it runs, so that single bytes do not extend the time."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_MS / 1000, self.transport.abort)

    def _watch_reader(self) -> None:
        """Starts a timer to check that the buffer shrinks. While it is full, nothing is added."""
        held_bytes = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(
            READER_TIMEOUT_MS / 1000, self._check_reader, held_bytes
        )

    def _check_reader(self, held_bytes: int) -> None:
        if held_bytes - self.transport.get_write_buffer_size() < LEAST_READ_BYTES:
            self.transport.abort()
        else:
            self._watch_reader()

    def _reject(self, error: ProblemError) -> None:
        """Answers with the error and closes. If an answer has begun, it only closes."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = response(error, "", "")
            headers = [*answer.raw_headers, _CLOSE]
            for event in (
                h11.Response(
                    status_code=answer.status_code,
                    headers=headers,
                    reason=error.mapping.status.phrase.encode(),
                ),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _head_too_large(detail: str) -> ProblemError:
    mapping = ErrorMapping(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        "INVALID_ARGUMENT",
        "Send fewer or shorter headers.",
    )
    return ProblemError("HEAD_TOO_LARGE", mapping, detail)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
