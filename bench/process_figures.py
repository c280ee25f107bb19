"""The resources of processes as the kernel reports them: processor time, memory, open files."""

from __future__ import annotations

import os
from pathlib import Path

SEGMENT_SUFFIX = ".log"


def cpu_seconds(pid: int) -> float:
    """Returns the processor time of a process since its start, in user and system mode."""
    # The name, in parentheses, may contain spaces; user time is the 12th field after it.
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int, field: str = "VmRSS") -> float:
    """Returns the resident memory in 10^6 bytes. `field`: `VmHWM` is the peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} has no {field}")


def open_files(pid: int, suffix: str = "") -> int:
    """Returns the number of open descriptors of files whose names have this suffix."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = descriptor.readlink()
        except FileNotFoundError:  # closed meanwhile
            continue
        count += target.is_absolute() and target.name.endswith(suffix)
    return count


def open_segments(pid: int) -> int:
    return open_files(pid, SEGMENT_SUFFIX)
