"""Memory that is kept free for the end of a process that has no other left."""

from __future__ import annotations

import signal

# To hand over its leaders or its lease, to report why it ends, and to close its logs.
RESERVED_BYTES = 8 << 20


class MemoryReserve:
    """`release` frees RESERVED_BYTES, and ends the process within so long, in whatever way:
    starting a thread without memory may never return."""

    def __init__(self, end_within_s: float) -> None:
        self._reserve: bytes | None = bytes(RESERVED_BYTES)
        self._end_within_s = end_within_s

    def release(self) -> None:
        if self._reserve is None:
            return
        self._reserve = None
        end_within(self._end_within_s)


def end_within(seconds: float) -> None:
    """Has the kernel end the process if it has not ended by then. Needs neither memory nor the
    event loop."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
