"""An executor that starts all its threads at once.

Without free memory, starting a thread later fails or never returns: `Thread.start` waits for a
thread that died in its first call.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor


def started_executor(threads: int, name: str) -> ThreadPoolExecutor:
    """Returns once all threads run. Raises RuntimeError if one cannot be started."""
    executor = ThreadPoolExecutor(threads, name)
    all_running = threading.Barrier(threads + 1)
    # Each thread takes one of these: no thread is free before the last one runs.
    for _ in range(threads):
        executor.submit(all_running.wait)
    all_running.wait()
    return executor
