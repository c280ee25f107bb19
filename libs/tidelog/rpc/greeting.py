"""Recognizes by the first bytes that a server sends whether it can be a service of Tidelog."""

from __future__ import annotations

import asyncio
import enum
import ssl
from contextlib import suppress

# A gRPC server sends its HTTP/2 settings at once. A process that is paused, or gets too little CPU,
# sends nothing within this time.
GREETING_TIMEOUT_SECONDS = 0.3
TLS_TIMEOUT_SECONDS = 1.0
_HTTP_2_OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_HEADER_BYTES = 9
_SETTINGS = 4
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")


class Greeting(enum.Enum):
    GRPC = "speaks gRPC"
    HTTP = "speaks HTTP/1.1, not gRPC"
    TLS = "speaks TLS, not plain gRPC"
    OTHER = "does not speak gRPC"
    NONE = "takes connections"  # and sends nothing

    @property
    def is_foreign(self) -> bool:
        """Whether no service of Tidelog listens there, whatever state it is in."""
        return self in (Greeting.HTTP, Greeting.TLS, Greeting.OTHER)


def recognized(first: bytes) -> Greeting:
    """
    >>> recognized(bytes((0, 0, 18, 4, 0, 0, 0, 0, 0))), recognized(b"HTTP/1.1 400")
    (<Greeting.GRPC: 'speaks gRPC'>, <Greeting.HTTP: 'speaks HTTP/1.1, not gRPC'>)
    """
    if not first:
        return Greeting.NONE
    if first.startswith(b"HTTP/"):
        return Greeting.HTTP
    if first.startswith(_TLS_RECORDS):
        return Greeting.TLS
    is_settings = len(first) >= _FRAME_HEADER_BYTES and first[3] == _SETTINGS
    return Greeting.GRPC if is_settings and first[0] == 0 else Greeting.OTHER


async def greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Greeting:
    """Opens HTTP/2 on a new connection and returns what the server answers; NONE: nothing, or it
    ends the connection, as a broker does at its limit of connections. Never raises, and leaves the
    connection to the caller.

    Some TLS servers end such a connection without an answer, so that they are asked by TLS."""
    first = b""
    peer = writer.get_extra_info("peername")
    has_ended = False
    with suppress(TimeoutError):
        async with asyncio.timeout(GREETING_TIMEOUT_SECONDS):
            writer.write(_HTTP_2_OPENING)
            try:
                while len(first) < _FRAME_HEADER_BYTES and not has_ended:
                    received = await reader.read(_FRAME_HEADER_BYTES - len(first))
                    first, has_ended = first + received, not received
            except OSError:
                has_ended = True
    if has_ended and not first and await _speaks_tls(peer):
        return Greeting.TLS
    return recognized(first)


async def _speaks_tls(peer: tuple[str, int]) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(TLS_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(*peer[:2], ssl=context)
            writer.close()
            return True
    return False
