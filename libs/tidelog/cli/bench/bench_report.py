"""What the two commands report in the same way."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidelog.cli.output import write_line, write_note
from tidelog.units import size_text

# From this share of one core on, the tool is likely the limit.
BUSY_CPU_PERCENT = 90


class CpuMeter:
    """The CPU time of this process since the object was created."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def percent(self) -> float:
        """Returns the CPU time in percent of one core."""
        wall = time.perf_counter() - self._wall
        return round(100 * (time.process_time() - self._cpu) / wall, 1) if wall else 0.0


def per_second(count: float, seconds: float) -> float:
    return count / seconds if seconds else 0.0


def rate_text(records: int, size_bytes: int, seconds: float) -> str:
    return (
        f"{per_second(records, seconds):,.0f} records/s, "
        f"{size_text(per_second(size_bytes, seconds))}/s"
    )


def write_rows(rows: Iterable[tuple[str, str]]) -> None:
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        write_line(f"{name:<{width}}  {text}")


def note_busy(cpu_percent: float) -> None:
    if cpu_percent >= BUSY_CPU_PERCENT:
        write_note(
            f"This command used {cpu_percent:.0f} % of a core: it is likely the limit, and not the "
            "cluster. Run several at once."
        )
