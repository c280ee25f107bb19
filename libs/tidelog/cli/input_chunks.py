"""Input that may block for ever, read without blocking the event loop."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

# As much as a pipe holds; a file gives more at once.
CHUNK_BYTES = 64 << 10
FILE_CHUNK_BYTES = 1 << 20
# Chunks that wait to be taken; then the thread waits, and with it whoever writes to us.
READ_AHEAD_CHUNKS = 4


def stdin_reader() -> Callable[[], bytes]:
    """Gives what is there, and b"" at the end."""
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:
        # No file behind it, as in a notebook or under a test's runner.
        return lambda: sys.stdin.buffer.read(CHUNK_BYTES)
    # Past Python's buffer: its lock must not be held by a thread that outlives main.
    return lambda: os.read(descriptor, CHUNK_BYTES)


async def read_chunks(read: Callable[[], bytes]) -> AsyncGenerator[bytes]:
    """What `read` gives until it gives b"". Raises the `OSError` that it raises.

    It runs in a daemon thread, because a read of a terminal cannot be called off, and must
    not keep the process alive after Ctrl-C."""
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
            # The loop may be closed by now: then nobody wants it.
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
