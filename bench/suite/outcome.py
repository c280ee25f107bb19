"""The outcome of a part of the suite: results with their verdicts, charts, and details. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from bench.report import Measured


class Point(NamedTuple):
    x: float
    y: float


class Line(NamedTuple):
    label: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    - `name`: the name of its file.
    - `ticks`: names for the integers of x, which make it a bar chart.
    """

    name: str
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = False
    ticks: Sequence[str] = ()

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {
            "lines": [
                {"label": line.label, "points": [list(point) for point in line.points]}
                for line in self.lines
            ]
        }


def chart_from_json(value: Mapping[str, Any]) -> Chart:
    lines = [
        Line(line["label"], [Point(*point) for point in line["points"]]) for line in value["lines"]
    ]
    return Chart(**{**value, "lines": lines, "ticks": tuple(value["ticks"])})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a part. `details`: values that JSON can hold."""

    results: Sequence[Measured]
    charts: Sequence[Chart] = ()
    details: Mapping[str, object] = field(default_factory=dict)
