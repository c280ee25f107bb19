"""A connection of HTTP, which nobody keeps without asking or reading.

The server bounds what lies between two requests; this bounds what lies before the first line of
one and the end of its head, how slowly an answer may be read, and how many connections there are.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidelog_admin_api.config import MAX_CONNECTIONS
from tidelog_admin_api.meanings import Meaning
from tidelog_admin_api.problems import (
    ProblemError,
    malformed,
    response,
    unavailable,
)

# From the connection, or the first byte of a request, to the end of the request's head.
HEAD_TIMEOUT_MS = 10_000
# Whoever reads an answer takes at least so much of what is held back in each such time.
READER_TIMEOUT_MS = 30_000
LEAST_READ_BYTES = 16 << 10

_CLOSE = (b"connection", b"close")


class HttpConnection(H11Protocol):
    _head_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self._refuse(
                unavailable(
                    "TOO_MANY_CONNECTIONS",
                    f"{MAX_CONNECTIONS} connections are open already, as many as may be at once",
                )
            )
            return
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head_timer)
        _cancel(self._reader_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if not is_asked:
            self._watch_head()
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        _cancel(self._reader_timer)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """For what is no HTTP; called while the error that says so is handled."""
        error = sys.exc_info()[1]
        hint = getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST)
        if hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            meaning = Meaning(
                HTTPStatus(hint), "INVALID_ARGUMENT", "Send fewer or shorter headers."
            )
            self._refuse(
                ProblemError("HEAD_TOO_LARGE", meaning, "the head of the request is too large")
            )
        else:
            self._refuse(malformed(f"the request is no HTTP: {error}"))

    def _watch_head(self) -> None:
        """The time runs on where it runs already: one byte now and then gains nothing."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_MS / 1000, self.transport.abort)

    def _watch_reader(self) -> None:
        """Nothing is added to what is held back as long as it is too much."""
        held_bytes = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(
            READER_TIMEOUT_MS / 1000, self._judge_reader, held_bytes
        )

    def _judge_reader(self, held_bytes: int) -> None:
        if held_bytes - self.transport.get_write_buffer_size() < LEAST_READ_BYTES:
            self.transport.abort()
        else:
            self._watch_reader()

    def _refuse(self, error: ProblemError) -> None:
        """Where an answer has begun already, the connection ends without another."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = response(error, "", "")
            headers = [*answer.raw_headers, _CLOSE]
            for event in (
                h11.Response(
                    status_code=answer.status_code,
                    headers=headers,
                    reason=error.meaning.status.phrase.encode(),
                ),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
