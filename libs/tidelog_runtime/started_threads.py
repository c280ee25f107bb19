"""An executor whose threads run from the start: where memory is short, starting one fails, or never
returns (`Thread.start` waits for a thread that died in its first call)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor


def started_executor(threads: int, name: str) -> ThreadPoolExecutor:
    """Returns once all of them run. Raises RuntimeError where one cannot be started."""
    executor = ThreadPoolExecutor(threads, name)
    all_running = threading.Barrier(threads + 1)
    # Each is taken by a thread of its own: none is free before the last one runs.
    for _ in range(threads):
        executor.submit(all_running.wait)
    all_running.wait()
    return executor
