"""A transport that can close a connection while received data is unread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

# How long received data is dropped before the connection ends.
LINGER_MS = 1_000


class LingeringTransport(asyncio.Transport):
    """Forwards calls to `inner`, with two exceptions.

    - `close` with unread data ends only the sending side. To close the socket at once would reset
      the connection, and the client could lose the answer. The connection ends when the client
      closes its side, after LINGER_MS at the latest.
    - `resume_reading` calls `resumed`, which decides whether to read.
    """

    def __init__(
        self,
        inner: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        has_unread: Callable[[], bool],
        resumed: Callable[[], None],
    ) -> None:
        super().__init__()
        self.inner = inner
        self._loop = loop
        self._has_unread = has_unread
        self._resumed = resumed
        self._ending: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self.is_closing():
            return
        if not (self._has_unread() and self.inner.can_write_eof()):
            self.inner.close()
            return
        self._ending = self._loop.call_later(LINGER_MS / 1000, self.inner.close)
        self.inner.write_eof()
        self.inner.resume_reading()

    def lost(self) -> None:
        """To be called when the connection has ended."""
        if self._ending is not None:
            self._ending.cancel()

    def is_closing(self) -> bool:
        """Whether the connection is closing. Received data is then dropped."""
        return self._ending is not None or self.inner.is_closing()

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self._resumed()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.inner.write(data)

    def abort(self) -> None:
        self.inner.abort()

    def get_write_buffer_size(self) -> int:
        return self.inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)
