"""Reads input that may block indefinitely, without blocking the event loop."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

# The capacity of a pipe, and a larger chunk for files.
CHUNK_BYTES = 64 << 10
FILE_CHUNK_BYTES = 1 << 20
# Chunks read ahead. Beyond them the thread waits, and the writer of the pipe blocks.
READ_AHEAD_CHUNKS = 4


def stdin_reader() -> Callable[[], bytes]:
    """Returns a function that reads the available bytes, and b"" at the end."""
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:
        # stdin has no file descriptor, for example in a notebook or a test runner.
        return lambda: sys.stdin.buffer.read(CHUNK_BYTES)
    # Bypasses Python's buffer: a thread that outlives main must not hold its lock.
    return lambda: os.read(descriptor, CHUNK_BYTES)


async def read_chunks(read: Callable[[], bytes]) -> AsyncGenerator[bytes]:
    """Yields what `read` returns until it returns b"". Raises the `OSError` that `read` raises.

    `read` runs in a daemon thread: a read of a terminal cannot be cancelled, and must not keep the
    process alive after Ctrl-C."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(READ_AHEAD_CHUNKS)
    ended = threading.Event()

    def pump() -> None:
        while True:
            room.acquire()
            if ended.is_set():
                return
            item: bytes | OSError
            try:
                item = read()
            except OSError as error:
                item = error
            # If the loop is closed already, the item is dropped.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(arrived.put_nowait, item)
            if not item or isinstance(item, OSError):
                return

    threading.Thread(target=pump, name="input", daemon=True).start()
    try:
        while True:
            item = await arrived.get()
            room.release()
            if isinstance(item, OSError):
                raise item
            if not item:
                return
            yield item
    finally:
        ended.set()
        room.release()
