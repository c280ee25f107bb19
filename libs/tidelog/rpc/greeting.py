"""Recognizes by the first bytes that a server sends whether it can be a service of Tidelog."""

from __future__ import annotations

import asyncio
import enum
from contextlib import suppress

# A gRPC server sends its HTTP/2 settings at once. A process that is paused, or gets too little CPU,
# sends nothing within this time.
GREETING_TIMEOUT_SECONDS = 0.3
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
    ends the connection. Never raises, and leaves the connection to the caller."""
    first = b""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(GREETING_TIMEOUT_SECONDS):
            writer.write(_HTTP_2_OPENING)
            while len(first) < _FRAME_HEADER_BYTES:
                received = await reader.read(_FRAME_HEADER_BYTES - len(first))
                if not received:
                    break
                first += received
    return recognized(first)
