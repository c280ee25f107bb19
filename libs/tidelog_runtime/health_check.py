"""The health check of containers: `health_check grpc|http [--alive] [HOST:PORT]`.

Checks whether a service is ready; with `--alive`, whether it answers at all.

- grpc: the standard health service answers SERVING; alive: it gives any answer.
- http: the gateway answers GET /ready with 200; alive: GET /health.

Without HOST:PORT, the check uses `TIDELOG_LISTEN`, with loopback in place of an address that
means every interface. It prints one line with the reason. Exit status: 0 or 1; 2: wrong usage.

Containers run this every few seconds. Importing gRPC takes longer than everything else here.
Therefore the single call is hand-written for a plain socket: a few HTTP/2 frames (RFC 9113)
with literal headers (RFC 7541).
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence

LISTEN_VARIABLE = "TIDELOG_LISTEN"
TIMEOUT_S = 4.0
EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE = 0, 1, 2
USAGE = "usage: python -m tidelog_runtime.health_check grpc|http [--alive] [HOST:PORT]"

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "*": "127.0.0.1", "::": "::1"}
# HealthCheckResponse.ServingStatus
_STATUSES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_SERVING = 1

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
_END_STREAM = _ACK = 0x1
_END_HEADERS = 0x4
_FRAME_HEADER_BYTES = 9
_MESSAGE_HEADER_BYTES = 5
_STREAM = 1
# An answer has some hundred bytes; a longer one is not from a Tidelog service.
_MAX_ANSWER_BYTES = 1 << 16


class UnhealthyError(Exception):
    """The service does not answer as it should; the message says how."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (
        len(payload).to_bytes(3) + kind.to_bytes(1) + flags.to_bytes(1) + stream.to_bytes(4)
    ) + payload


def check_request() -> bytes:
    """Returns the bytes of a client's call of Health.Check with an empty request."""

    def text(value: bytes) -> bytes:
        return len(value).to_bytes(1) + value

    headers = (
        b"\x83\x86"  # :method POST, :scheme http
        + (b"\x04" + text(b"/grpc.health.v1.Health/Check"))  # :path
        + (b"\x01" + text(b"localhost"))  # :authority
        + (b"\x0f\x10" + text(b"application/grpc"))  # content-type
        + (b"\x00" + text(b"te") + text(b"trailers"))
    )
    return (
        _PREFACE
        + frame(_SETTINGS, 0, 0)
        + frame(_HEADERS, _END_HEADERS, _STREAM, headers)
        + frame(_DATA, _END_STREAM, _STREAM, bytes(_MESSAGE_HEADER_BYTES))
    )


def serving_status(message: bytes) -> int:
    """Returns the status of a serialized HealthCheckResponse.

    Raises `UnhealthyError` if `message` is something else.
    """
    if not message:
        return 0
    if len(message) != 2 or message[0] != 0x08:
        raise UnhealthyError("answers a health check with another message")
    return message[1]


class HealthExchange:
    """The client's side of the call: bytes in; the bytes to reply and the status out."""

    def __init__(self) -> None:
        self._unread = b""
        self._message = b""

    def receive(self, data: bytes) -> tuple[bytes, int | None]:
        """Returns the bytes to send at once, and the serving status as soon as it is known.

        Raises `UnhealthyError` if the call failed.
        """
        self._unread += data
        replies = b""
        for kind, flags, payload in self._frames():
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                replies += frame(kind, _ACK, 0, payload if kind == _PING else b"")
            elif kind == _DATA:
                self._message += payload
                if (status := self._status()) is not None:
                    return replies, status
            elif kind in (_RST_STREAM, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
                raise UnhealthyError("rejects health checks")
        return replies, None

    def _frames(self) -> Iterator[tuple[int, int, bytes]]:
        while len(self._unread) >= _FRAME_HEADER_BYTES:
            end = _FRAME_HEADER_BYTES + int.from_bytes(self._unread[:3])
            if end > _MAX_ANSWER_BYTES:
                raise UnhealthyError("does not speak gRPC")
            if len(self._unread) < end:
                return
            whole, self._unread = self._unread[:end], self._unread[end:]
            yield whole[3], whole[4], whole[_FRAME_HEADER_BYTES:]

    def _status(self) -> int | None:
        if len(self._message) < _MESSAGE_HEADER_BYTES:
            return None
        end = _MESSAGE_HEADER_BYTES + int.from_bytes(self._message[1:_MESSAGE_HEADER_BYTES])
        if len(self._message) < end:
            return None
        return serving_status(self._message[_MESSAGE_HEADER_BYTES:end])


def check_grpc(connection: socket.socket, deadline: float, *, alive: bool) -> str:
    """Returns the name of the reported status. Raises `UnhealthyError`, `OSError`."""
    connection.sendall(check_request())
    conversation = HealthExchange()
    while True:
        replies, status = conversation.receive(_read(connection, deadline))
        if status is not None:
            status_name = _STATUSES.get(status, str(status))
            if status != _SERVING and not alive:
                raise UnhealthyError(f"says {status_name}")
            return status_name
        if replies:
            connection.sendall(replies)


def check_http(connection: socket.socket, deadline: float, *, alive: bool) -> str:
    """Returns "ready" or "alive". Raises `UnhealthyError`, `OSError`."""
    path = "/health" if alive else "/ready"
    question = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    connection.sendall(question.encode())
    answer = b""
    while b"\r\n" not in answer and len(answer) < _MAX_ANSWER_BYTES:
        answer += _read(connection, deadline)
    status_line = answer.split(b"\r\n")[0].decode(errors="replace")
    if status_line.split(" ")[1:2] != ["200"]:
        raise UnhealthyError(f"answers GET {path} with {status_line[:100]!r}")
    return "ready" if not alive else "alive"


def _read(connection: socket.socket, deadline: float) -> bytes:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection.settimeout(left_s)
    data = connection.recv(_MAX_ANSWER_BYTES)
    if not data:
        raise UnhealthyError("ends the connection without an answer")
    return data


_CHECKS = {"grpc": check_grpc, "http": check_http}


def target_address(address: str) -> tuple[str, int]:
    """Returns host and port. Raises `ValueError` if `address` is not host:port."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address!r} is not an address; give host:port, such as 127.0.0.1:7500")
    host = host.removeprefix("[").removesuffix("]")
    return _LOOPBACK.get(host, host), int(port)


def main(argv: Sequence[str]) -> int:
    arguments = [argument for argument in argv if argument != "--alive"]
    address = arguments[1] if len(arguments) == 2 else os.environ.get(LISTEN_VARIABLE, "")
    if not 1 <= len(arguments) <= 2 or arguments[0] not in _CHECKS:
        return _end(EXIT_USAGE, USAGE)
    if not address:
        return _end(EXIT_USAGE, f"give HOST:PORT, or set {LISTEN_VARIABLE}; {USAGE}")
    try:
        host, port = target_address(address)
    except ValueError as error:
        return _end(EXIT_USAGE, str(error))
    deadline = time.monotonic() + TIMEOUT_S
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as connection:
            status_name = _CHECKS[arguments[0]](connection, deadline, alive="--alive" in argv)
    except TimeoutError:
        return _end(EXIT_UNHEALTHY, f"{host}:{port} does not answer within {TIMEOUT_S:g} s")
    except (OSError, UnhealthyError) as error:
        return _end(EXIT_UNHEALTHY, f"{host}:{port}: {error}")
    return _end(EXIT_HEALTHY, f"{host}:{port}: {status_name}")


def _end(status: int, line: str) -> int:
    sys.stdout.write(line + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
