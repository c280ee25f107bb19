"""Results with their targets, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

LOOP_ROUNDS = 200_000
LOOP_TRIES = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """A result.

    - `ratio_to_ceiling`: if it applies, the median over pairs of value and ceiling that were
      measured one after the other.
    - `target`: as a text.
    """

    name: str
    value: float
    unit: str
    ratio_to_ceiling: float | None = None
    target: str = ""
    met: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the keys of a result in a file.

        - `name`, `value`, `unit`: what was measured.
        - `ratio_to_ceiling`: in `out/bench.json`, the value divided by that of the no-op gRPC call
          of the same part, measured in turn; null: it does not apply.
        - `target`: the bound of the value, or of the ratio ("C"), as a text.
        - `met`: whether the result meets its target; null: it has none.
        """
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "ratio_to_ceiling": self.ratio_to_ceiling,
            "target": self.target,
            "met": self.met,
        }


def at_most(name: str, value: float, bound: float, unit: str) -> Measured:
    return Measured(name, value, unit, target=f"<= {bound:g}", met=value <= bound)


def at_least(
    name: str, value: float, bound: float, unit: str, ratio_to_ceiling: float | None = None
) -> Measured:
    return Measured(name, value, unit, ratio_to_ceiling, f">= {bound:g}", value >= bound)


def of_ceiling(name: str, value: float, ratio: float, bound: float, unit: str) -> Measured:
    """A result with a bound on its ratio."""
    return Measured(name, value, unit, ratio, f">= {bound:g} C", ratio >= bound)


def commit() -> str:
    """Returns the commit of the measured code, with a + if files differ; empty: unknown."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        described = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""
    return described.stdout.strip()


def measured(of_commit: str) -> dict[str, str]:
    """Returns of which code results are, and that they have ended now."""
    return {
        "commit": of_commit,
        "python": platform.python_version(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def missed_names(results: Sequence[Measured]) -> list[str]:
    """Returns the names of the results that missed their targets."""
    return [result.name for result in results if result.met is False]


def document(
    form: str, settings: Mapping[str, object], results: Sequence[Measured]
) -> dict[str, object]:
    """Returns the keys that the files of all benches with forms have.

    - `machine`: processor, cores, memory, Python, kernel.
    - `measured`: the `commit` (with a + if files differ), the version of `python`, and the time of
      the end (`at`, UTC).
    - `form`: `full`, `quick`, or `custom` if a setting differs.
    - `settings`: the requested settings, by the names of the options.
    - `results`: the rows of the table, each with `name`, `value`, `unit`, `target` and `met`.
    - `not_met`: names of the results that missed their targets; with any, the exit status is 1.
    """
    rows = [result.as_json() | {"value": round(result.value, 3)} for result in results]
    for row in rows:
        del row["ratio_to_ceiling"]
    return {
        "machine": machine(),
        "measured": measured(commit()),
        "form": form,
        "settings": dict(settings),
        "results": rows,
        "not_met": missed_names(results),
    }


def write_json(path: Path, content: Mapping[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def write_form(directory: Path, name: str, content: Mapping[str, object]) -> Path:
    """Writes the file of a bench with forms; only the full form has the name without `partial`."""
    suffix = ".json" if content["form"] == "full" else ".partial.json"
    return write_json(directory / (name + suffix), content)


def finish(results: Sequence[Measured], console: Console, title: str, path: Path) -> int:
    """Shows the results. Returns the exit status."""
    show(results, console, title=title)
    console.print(f"Written: {path}", highlight=False)
    missed = missed_names(results)
    if missed:
        console.print(f"[red]Missed:[/] {'; '.join(missed)}", highlight=False)
    return 1 if missed else 0


def lack_of_room(directory: Path, needed_bytes: float, option: str) -> str:
    """Returns why the disk has too little room; empty: it has enough. `option`: lowers the need."""
    free = shutil.disk_usage(directory).free
    if free >= needed_bytes:
        return ""
    return (
        f"{directory} has {free / 1e9:.1f} GB free, and {needed_bytes / 1e9:.1f} GB are needed; "
        f"set TMPDIR to a directory with more room, or lower {option}"
    )


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
    """Returns the duration of one round of a loop. An interpreter that is built without
    optimizations is slower, and so are all services."""

    def once() -> int:
        began, total = time.perf_counter_ns(), 0
        for number in range(LOOP_ROUNDS):
            total += number & 7
        return time.perf_counter_ns() - began

    return min(once() for _ in range(LOOP_TRIES)) / LOOP_ROUNDS


def plain_document(results: Sequence[Measured]) -> dict[str, object]:
    """Returns the keys of the file of a bench without forms.

    - `machine`: processor, cores, memory, Python, kernel.
    - `measured`: the `commit` (with a + if files differ), the version of `python`, and the time of
      the end (`at`, UTC).
    - `results`: each with `name`, `value`, `unit`, `ratio_to_ceiling` (null), `target` and `met`.
    """
    return {
        "machine": machine(),
        "measured": measured(commit()),
        "results": [result.as_json() for result in results],
    }


def show(results: Sequence[Measured], console: Console, *, title: str) -> None:
    table = Table(title=title)
    table.add_column("result")
    has_ceiling = any(result.ratio_to_ceiling is not None for result in results)
    for column in ("value", "unit", *(["of the ceiling"] if has_ceiling else []), "target"):
        table.add_column(column, justify="right")
    for result in results:
        ratio = "" if result.ratio_to_ceiling is None else f"{result.ratio_to_ceiling:.2f}"
        style = {True: "green", False: "red", None: ""}[result.met]
        row = [result.name, f"{result.value:,.2f}", result.unit]
        row += [ratio] if has_ceiling else []
        table.add_row(*row, result.target, style=style)
    console.print(table)
    console.print(", ".join(f"{key}: {value}" for key, value in machine().items()))


def run_alone(name: str, measure: Callable[[Path, Console], Awaitable[Sequence[Measured]]]) -> int:
    """Runs a bench with its own directory and file, `out/<name>.json`. Returns the exit status."""
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))

    async def run() -> Sequence[Measured]:
        return await measure(directory, console)

    try:
        results = uvloop.run(run())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    path = write_json(Path("out") / f"{name}.json", plain_document(results))
    return finish(results, console, "Tidelog bench (medians)", path)
