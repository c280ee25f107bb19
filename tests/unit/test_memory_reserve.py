"""A process without memory ends in any case."""

from __future__ import annotations

import signal
import subprocess
import sys

HANGS = """
import threading
from tidelog_runtime.memory_reserve import MemoryReserve, end_within
{ends}
threading.Event().wait()
"""


def status_of(ends: str) -> int:
    hanging = [sys.executable, "-c", HANGS.format(ends=ends)]
    return subprocess.run(hanging, timeout=60, check=False).returncode


def test_the_kernel_kills_a_process_that_hangs_at_its_end() -> None:
    assert status_of("end_within(0.2)") == -signal.SIGALRM


def test_a_process_that_hangs_after_releasing_its_reserve_is_killed_too() -> None:
    assert status_of("reserve = MemoryReserve(0.2); reserve.release()") == -signal.SIGALRM
