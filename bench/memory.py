"""Resident memory of processes, from the kernel."""

from __future__ import annotations

from pathlib import Path


def rss_mb(pid: int, field: str = "VmRSS") -> float:
    """10^6 bytes. `VmHWM` is the most there ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} tells no {field}")
