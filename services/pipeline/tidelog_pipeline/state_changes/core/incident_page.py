"""The HTML page of an incident: one file that loads no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.phrases import plural
from tidelog.state_changes.json_form import format_time
from tidelog_pipeline.pages import Cell, render
from tidelog_pipeline.state_changes.core.charts import changes, critical_paths, lanes
from tidelog_pipeline.state_changes.core.failovers import STEPS
from tidelog_pipeline.state_changes.core.incident import Incident

_TEMPLATE = Path(__file__).with_name("incident.html")
# Columns whose names do not say what they are.
_HEADINGS = {"told_at": "reported at", "told_ms": "received ms"}


def page(incident: Incident) -> str:
    failovers = incident.failovers.rows
    troubled = incident.availability.rows
    return render(
        _TEMPLATE,
        incident=incident,
        longest_without_leader_ms=max(
            (row["longest_without_leader_ms"] for row in troubled), default=0
        ),
        lanes=lanes(incident),
        changes=changes(incident),
        critical_paths=critical_paths(failovers),
        worst_steps="; ".join(
            f"{text} {failovers[0][column]:,} ms"
            for column, text in STEPS.items()
            if failovers and failovers[0][column] is not None
        ),
        headings=_headings,
        cells=_cells,
        plural=plural,
        time=format_time,
    )


def _headings(columns: str) -> list[str]:
    return [_HEADINGS.get(name, name.replace("_", " ")) for name in columns.split()]


def _cells(columns: str, rows: Sequence[Mapping[str, Any]]) -> list[list[Cell]]:
    return [[_cell(name, row[name]) for name in columns.split()] for row in rows]


def _cell(name: str, value: Any) -> Cell:
    if value is None or (name in ("broker", "broker_lost") and value == -1):
        return Cell("")
    if name.endswith("_at"):
        return Cell(format_time(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(f"{value:,.10g}", "number")
    return Cell(str(value))
