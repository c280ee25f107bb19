"""What the pauses of an event loop consist of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.pauses.__main__ import content
from bench.pauses.reports import Delay, Longest, loops_that_report
from bench.pauses.run import Pause

# How long the loop is blocked, and the least of it that is measured.
BLOCKED_S, LEAST_S = 0.3, 0.25
_MAIN = """
import asyncio, threading, time, uvloop

def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

async def main():
    await asyncio.sleep(0.05)
    {blocking}
    await asyncio.sleep(0.05)

uvloop.run(main())
"""


def delays_of(directory: Path, blocking: str) -> Longest:
    with loops_that_report(directory):
        program = [sys.executable, "-c", _MAIN.format(blocking=blocking)]
        subprocess.run(program, check=True, env=dict(os.environ))
    (report,) = directory.iterdir()
    lines = report.read_text().splitlines()
    return Longest.of([Delay(*map(float, line.split())) for line in lines])


def test_a_wait_for_a_disk_is_elapsed_time_of_the_loop_alone(tmp_path: Path) -> None:
    longest = delays_of(tmp_path, f"time.sleep({BLOCKED_S})")
    assert longest.elapsed >= longest.alone > LEAST_S
    assert longest.own < LEAST_S


def test_computing_is_own_time_and_of_the_loop_alone(tmp_path: Path) -> None:
    longest = delays_of(tmp_path, f"compute({BLOCKED_S})")
    assert longest.own > LEAST_S
    assert longest.alone > LEAST_S


def test_the_processor_time_of_another_thread_is_not_of_the_loop_alone(tmp_path: Path) -> None:
    computing = f"other = threading.Thread(target=compute, args=({BLOCKED_S},))"
    longest = delays_of(tmp_path, f"{computing}; other.start(); other.join()")
    assert longest.own > LEAST_S
    # On a busy machine the loop waits for longer than that thread computes.
    assert longest.elapsed - longest.alone > LEAST_S


def test_both_figures_are_written() -> None:
    slow_disk = Pause("broker", "Produce", (0.3,), "OK", (0.01,), (0.25,))
    expensive = Pause("broker", "Fetch", (0.05,), "OK", (0.04,), (0.045,))
    # A consumer has no disk.
    decoding = Pause("consumer", "gzip", (0.9,), "OK", (0.02,))
    written = content([slow_disk, expensive, decoding], rounds=1)
    assert written["longest_own_pause_ms"] == 40.0
    assert written["longest_alone_pause_ms"] == 250.0
    assert written["longest_pause_ms"] == 900.0
    assert [p["alone_median_ms"] for p in written["pauses"]] == [250.0, 45.0, 20.0]
