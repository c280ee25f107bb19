"""`out/bench.json`, in all but the full form `out/bench.partial.json`:

- `machine`: processor, cores, memory, Python, kernel;
- `form`: "full", "quick", or "custom" where a setting is different; `settings`: all of them, by the
  names of the options;
- `results`: the rows of the table, a list of `name`, `value`, `unit`, `ratio_to_ceiling` (to C, the
  no-op gRPC call of the same part, measured in turn; null: it does not apply), `wanted` (the bound,
  as a text), `met` (null where there is no bound) and `part`;
- `not_met`: names of results beyond their bounds; empty with exit status 0, else it is 1;
- `seconds`: the duration of each part; `measured`: for each the `commit`, with a + where files
  differed, the `python` and the time when it ended (`at`, UTC);
- `parts`: by part, `charts` (the content of `out/bench.html`, as numbers) and `details`: throughput
  has its `cases` (with processor seconds of brokers and client for each GB) and `larger_ceilings`;
  latency the whole distributions; scale and alone for each size what was `found`, `problems`, and
  `growth_exponents`, the power of the number of partitions with which each cost grows.

Parts that run separately replace their own entries in the file and leave the others unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.report import Measured, machine
from bench.suite.outcome import Chart, Outcome, chart_from_json
from bench.suite.settings import FULL_FORM, PARTS, Settings, as_json

FULL_NAME, PARTIAL_NAME = "bench", "bench.partial"


def name_of(form: str) -> str:
    """The name of the files, without their suffixes."""
    return FULL_NAME if form == FULL_FORM else PARTIAL_NAME


def content(
    form: str,
    settings: Settings,
    outcomes: Mapping[str, Outcome],
    seconds: Mapping[str, float],
    measured: Mapping[str, Mapping[str, str]],
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """`seconds`, `measured`: of these outcomes.
    `before`: the previous content of the file; empty: there was none."""
    results = [row for row in before.get("results", ()) if row["part"] not in outcomes]
    results += [_row(part, r) for part, found in outcomes.items() for r in found.results]
    results.sort(key=lambda row: PARTS.index(row["part"]))
    parts = {
        part: {"charts": [chart.as_json() for chart in found.charts], "details": found.details}
        for part, found in outcomes.items()
    }
    parts = dict(before.get("parts", {})) | parts
    return {
        "machine": machine(),
        "form": form,
        "settings": as_json(settings),
        "results": results,
        "not_met": [row["name"] for row in results if row["met"] is False],
        "seconds": dict(before.get("seconds", {})) | dict(seconds),
        "measured": dict(before.get("measured", {})) | dict(measured),
        "parts": {part: parts[part] for part in PARTS if part in parts},
    }


def read(path: Path) -> Mapping[str, Any]:
    """Empty if there is none."""
    found: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(path: Path, whole: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=2) + "\n")


def charts_of(whole: Mapping[str, Any]) -> Mapping[str, Sequence[Chart]]:
    """By part."""
    return {
        part: [chart_from_json(chart) for chart in held["charts"]]
        for part, held in whole["parts"].items()
    }


def results_of(whole: Mapping[str, Any]) -> Mapping[str, Sequence[Measured]]:
    """By part."""
    found: dict[str, list[Measured]] = {}
    for row in whole["results"]:
        values = {name: value for name, value in row.items() if name != "part"}
        found.setdefault(row["part"], []).append(Measured(**values))
    return found


def _row(part: str, result: Measured) -> dict[str, Any]:
    row = asdict(result) | {"part": part, "value": round(result.value, 4)}
    if result.ratio_to_ceiling is not None:
        row["ratio_to_ceiling"] = round(result.ratio_to_ceiling, 4)
    return row
