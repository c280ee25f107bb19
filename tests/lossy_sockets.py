"""Sockets that lose packets on their way in, as on a bad network: a filter of the kernel drops a
share of them. It needs no permissions, only the same user, and Linux 5.6."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from beside import beside

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_PIDFD_GETFD = 438
_IP = (socket.AF_INET, socket.AF_INET6)
# Instructions of a classic BPF program: load a random word, compare, return.
_LOAD, _IS_AT_LEAST, _RETURN = 0x20, 0x35, 0x06
_RANDOM = 0xFFFFF000 + 56
_ALL, _NOTHING = 0xFFFFFFFF, 0
# How soon new connections lose packets, too.
_AGAIN_SECONDS = 0.2

_libc = ctypes.CDLL(None, use_errno=True)


def lose(one: socket.socket, percent: int) -> None:
    """From now on the socket, and every connection that it accepts, loses this share of what
    arrives; 0: nothing."""
    if not percent:
        with suppress(FileNotFoundError):
            one.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        return
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, _RANDOM),
            (_IS_AT_LEAST, 0, 1, 0xFFFFFFFF * percent // 100),
            (_RETURN, 0, 0, _ALL),
            (_RETURN, 0, 0, _NOTHING),
        )
    )
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HP", len(program) // 8, ctypes.addressof(held))
    one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)


@asynccontextmanager
async def losing_packets(pid: int, percent: int, peers: Iterable[int] = ()) -> AsyncIterator[None]:
    """The connections of a process, new ones included, lose a share of what arrives.

    - `peers`: processes that lose as much of what this one sends to them."""
    others = list(peers)

    async def keep_losing() -> None:
        while True:
            _lose_all(pid, others, percent)
            await asyncio.sleep(_AGAIN_SECONDS)

    try:
        async with beside(keep_losing()):
            yield
    finally:
        _lose_all(pid, others, 0)


def _lose_all(pid: int, peers: Sequence[int], percent: int) -> None:
    ends: set[int] = set()
    for one in _sockets_of(pid):
        lose(one, percent)
        ends.add(one.getsockname()[1])
    for peer in peers:
        for one in _sockets_of(peer):
            with suppress(OSError):  # it is not connected
                if one.getpeername()[1] in ends:
                    lose(one, percent)


def _sockets_of(pid: int) -> Iterator[socket.socket]:
    """Yields copies of the TCP sockets of a process."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if not str(link.readlink()).startswith("socket:"):
                    continue
                with _copy_of(process, int(link.name)) as one:
                    if one.family in _IP and one.type == socket.SOCK_STREAM:
                        yield one
    finally:
        os.close(process)


def _copy_of(process: int, descriptor: int) -> socket.socket:
    copied = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    if copied < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return socket.socket(fileno=copied)
