"""What a process prepares for a shortage of memory: a reserve for its shutdown, and threads.

Without free memory, starting a thread fails or never returns: `Thread.start` waits for a thread
that died in its first call.
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

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


def started_executor(threads: int, name: str) -> ThreadPoolExecutor:
    """Returns once all threads run. Raises RuntimeError if one cannot be started."""
    executor = ThreadPoolExecutor(threads, name)
    all_running = threading.Barrier(threads + 1)
    # Each thread takes one of these: no thread is free before the last one runs.
    for _ in range(threads):
        executor.submit(all_running.wait)
    all_running.wait()
    return executor
