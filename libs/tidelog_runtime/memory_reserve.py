"""Memory that is kept free for the shutdown of a process that runs out of memory."""

from __future__ import annotations

import signal

# Enough to transfer leaders or revoke the lease, to report the cause, and to close the logs.
RESERVED_BYTES = 8 << 20


class MemoryReserve:
    """A block of RESERVED_BYTES that `release` frees.

    `release` also limits the time until the process ends: starting a thread without memory may
    never return.
    """

    def __init__(self, end_within_s: float) -> None:
        self._reserve: bytes | None = bytes(RESERVED_BYTES)
        self._end_within_s = end_within_s

    def release(self) -> None:
        if self._reserve is None:
            return
        self._reserve = None
        end_within(self._end_within_s)


def end_within(seconds: float) -> None:
    """Has the kernel end the process if it has not ended after this time.

    Needs neither memory nor the event loop.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds)
