"""Results with their bounds, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

LOOP_ROUNDS = 200_000
LOOP_TRIES = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """`ratio_to_ceiling`: where it applies, the median over pairs of value and ceiling that were
    measured one after the other.
    `wanted`: the bound, as a text."""

    name: str
    value: float
    unit: str
    ratio_to_ceiling: float | None = None
    wanted: str = ""
    met: bool | None = None


def at_most(name: str, value: float, bound: float, unit: str) -> Measured:
    return Measured(name, value, unit, wanted=f"<= {bound:g}", met=value <= bound)


def at_least(
    name: str, value: float, bound: float, unit: str, ratio_to_ceiling: float | None = None
) -> Measured:
    return Measured(name, value, unit, ratio_to_ceiling, f">= {bound:g}", value >= bound)


def of_ceiling(name: str, value: float, ratio: float, bound: float, unit: str) -> Measured:
    """With a bound on the ratio."""
    return Measured(name, value, unit, ratio, f">= {bound:g} C", ratio >= bound)


def commit() -> str:
    """The commit of the measured code, with a + where files have changed since; empty: unknown."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        described = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""
    return described.stdout.strip()


def not_met(results: Sequence[Measured]) -> list[str]:
    """The names of results beyond their bounds."""
    return [result.name for result in results if result.met is False]


def rows(results: Sequence[Measured]) -> list[dict[str, object]]:
    """As files hold them: name, value, unit, wanted, met."""
    return [
        {
            "name": result.name,
            "value": round(result.value, 3),
            "unit": result.unit,
            "wanted": result.wanted,
            "met": result.met,
        }
        for result in results
    ]


def machine() -> dict[str, object]:
    processor = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "python_loop_ns": round(_loop_ns(), 1),
        "kernel": platform.release(),
    }


def _loop_ns() -> float:
    """The cost of one round of a loop: interpreters that are built without optimizations are
    slower, and so are all services."""

    def once() -> int:
        began, total = time.perf_counter_ns(), 0
        for number in range(LOOP_ROUNDS):
            total += number & 7
        return time.perf_counter_ns() - began

    return min(once() for _ in range(LOOP_TRIES)) / LOOP_ROUNDS


def write(results: Sequence[Measured], path: Path) -> None:
    """Writes the results of a bench that has no more than `machine` and `results`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(), "results": [asdict(result) for result in results]}
    path.write_text(json.dumps(content, indent=2) + "\n")


def show(
    results: Sequence[Measured], console: Console, *, title: str = "Tidelog bench (medians)"
) -> None:
    table = Table(title=title)
    table.add_column("what")
    has_ceiling = any(result.ratio_to_ceiling is not None for result in results)
    for column in ("value", "unit", *(["of the ceiling"] if has_ceiling else []), "wanted"):
        table.add_column(column, justify="right")
    for result in results:
        ratio = "" if result.ratio_to_ceiling is None else f"{result.ratio_to_ceiling:.2f}"
        style = {True: "green", False: "red", None: ""}[result.met]
        row = [result.name, f"{result.value:,.2f}", result.unit]
        row += [ratio] if has_ceiling else []
        table.add_row(*row, result.wanted, style=style)
    console.print(table)
    console.print(", ".join(f"{key}: {value}" for key, value in machine().items()))


def run_alone(name: str, measure: Callable[[Path, Console], Awaitable[Sequence[Measured]]]) -> int:
    """Runs a bench with its own directory and file, `out/<name>.json`. Exit status 1: a bound is
    missed."""
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))

    async def run() -> Sequence[Measured]:
        return await measure(directory, console)

    try:
        results = uvloop.run(run())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    write(results, Path("out") / f"{name}.json")
    show(results, console)
    return 1 if not_met(results) else 0
