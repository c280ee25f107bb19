"""What was measured: a table, and `out/bench.json`.

`out/bench.json` holds `machine` (processor, cores, memory, Python, kernel) and `results`,
a list of `name`, `value`, `unit`, `ratio_to_ceiling` (where it applies: the median over
pairs of value/ceiling measured one after the other), `wanted` (the goal, as a text) and
`met`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Measured:
    name: str
    value: float
    unit: str
    ratio_to_ceiling: float | None = None
    wanted: str = ""
    met: bool | None = None


def at_most(name: str, value: float, bound: float, unit: str) -> Measured:
    return Measured(name, value, unit, wanted=f"<= {bound:g}", met=value <= bound)


def not_met(results: Sequence[Measured]) -> list[str]:
    """Names of those beyond their bounds."""
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
        "kernel": platform.release(),
    }


def write(results: Sequence[Measured], path: Path, *, keep_others: bool = False) -> None:
    """`keep_others`: what the file says of other figures stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    by_name: dict[str, object] = {}
    if keep_others and path.exists():
        by_name = {result["name"]: result for result in json.loads(path.read_text())["results"]}
    by_name |= {result.name: asdict(result) for result in results}
    content = {"machine": machine(), "results": list(by_name.values())}
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
