"""The file of `make bench`: `out/bench.json`, in all but the full form `out/bench.partial.json`.

Parts that run separately replace their own entries in the file and leave the others unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
    """Returns the keys of the file.

    - `machine`: processor, cores, memory, Python, kernel.
    - `form`, `settings`: `full`, `quick`, or `custom` if a setting differs; all settings by the
      names of the options.
    - `results`: the rows of the table, each with its `part`.
    - `not_met`: names of the results that missed their targets; with any, the exit status is 1.
    - `seconds`: the duration of each part.
    - `measured`: for each part, the `commit` (with a + if files differed), the version of `python`,
      and the time of its end (`at`, UTC).
    - `parts`: for each part, `charts` (the numbers of the charts in the page) and `details`.
      Details of `throughput` are its `cases`, with processor seconds of brokers and client for each
      GB, and `larger_ceilings`; of `latency`, the distributions; of `scale` and `alone`, for each
      size the values that were `found` and the `problems`, and `growth_exponents`: the power of the
      number of partitions with which each cost grows.

    `before` is the previous content of the file; empty: there was none.
    """
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
    """Returns the content of the file; empty if it does not exist."""
    found: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for row in found.get("results", ()):
        # Earlier versions wrote the target by another name.
        if "wanted" in row:
            row["target"] = row.pop("wanted")
    return found


def charts_of(document: Mapping[str, Any]) -> Mapping[str, Sequence[Chart]]:
    """Returns the charts by part."""
    return {
        part: [chart_from_json(chart) for chart in held["charts"]]
        for part, held in document["parts"].items()
    }


def results_of(document: Mapping[str, Any]) -> Mapping[str, Sequence[Measured]]:
    """Returns the results by part."""
    found: dict[str, list[Measured]] = {}
    for row in document["results"]:
        result = Measured(**{name: value for name, value in row.items() if name != "part"})
        found.setdefault(row["part"], []).append(result)
    return found


def _row(part: str, result: Measured) -> dict[str, Any]:
    row = result.as_json() | {"part": part, "value": round(result.value, 4)}
    if result.ratio_to_ceiling is not None:
        row["ratio_to_ceiling"] = round(result.ratio_to_ceiling, 4)
    return row
