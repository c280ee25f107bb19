"""Imported by each Python process that has this directory on its PYTHONPATH.

A service's event loop writes its delays, one a line, to a file in PAUSES_DIRECTORY that has the
process id as its name. A line has five numbers, in seconds: the latest time at which the loop
should have run, the delay, the part of the delay in which its thread was ready and had no
processor, and the processor time since the loop ran before, of the whole process and of the loop's
thread."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TextIO

import uvloop

INTERVAL_S = 0.002
# Shorter delays are written only to show that the loop runs.
MIN_PAUSE_S = 0.004
MAX_SILENCE_S = 0.1

_run = uvloop.run


async def _beat(out: TextIO) -> None:
    """Measured in the loop itself, so that other processes do not affect it."""
    waited_file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def waited_s() -> float:
        return int(os.pread(waited_file, 100, 0).split()[1]) / 1e9

    written = 0.0
    before, waited_before = time.monotonic(), waited_s()
    used_before, own_before = time.process_time(), time.thread_time()
    while True:
        await asyncio.sleep(INTERVAL_S)
        now, waited = time.monotonic(), waited_s()
        used, own = time.process_time(), time.thread_time()
        pause = now - before - INTERVAL_S
        if pause >= MIN_PAUSE_S or now - written >= MAX_SILENCE_S:
            late = max(0.0, pause)
            idle = min(waited - waited_before, late)
            by_all, by_loop = used - used_before, own - own_before
            out.write(
                f"{before + INTERVAL_S:.6f} {late:.6f} {idle:.6f} {by_all:.6f} {by_loop:.6f}\n"
            )
            written = now
        before, waited_before, used_before, own_before = now, waited, used, own


def _run_with_beat(main: Coroutine[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
    async def beside_beat() -> Any:
        path = Path(os.environ["PAUSES_DIRECTORY"]) / str(os.getpid())
        with path.open("w", buffering=1, encoding="ascii") as out:
            beat = asyncio.create_task(_beat(out))
            try:
                return await main
            finally:
                beat.cancel()

    return _run(beside_beat(), *args, **kwargs)


uvloop.run = _run_with_beat
